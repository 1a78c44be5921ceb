package evaluate

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Files of an evaluation's folder.
const (
	journalName  = "samples.jsonl"
	settingsName = "settings.json"
)

// journal is the file of samples. A line counts when it is whole.
type journal struct {
	path string

	mu     sync.Mutex
	file   *os.File
	all    map[sampleKey]Sample
	failed error // of a write, which may have left a piece of a line
}

// openJournal opens the journal of a folder, or begins one. A line that a crash has cut is
// taken away.
func openJournal(c Config) (*journal, error) {
	if err := os.MkdirAll(c.Folder, 0o755); err != nil { //nolint:gosec // results are for everybody to read
		return nil, err
	}
	j := &journal{path: filepath.Join(c.Folder, journalName), all: map[sampleKey]Sample{}}
	var err error
	if j.file, err = os.OpenFile(j.path, os.O_CREATE|os.O_RDWR, 0o644); err != nil { //nolint:gosec // the same
		return nil, err
	}
	var samples []Sample
	var whole int64
	if err = j.lock(); err == nil {
		err = checkSettings(c.Folder, c.settings())
	}
	if err == nil {
		samples, whole, err = decodeJournal(j.file, j.path)
	}
	if err == nil {
		err = j.file.Truncate(whole)
	}
	if err == nil {
		_, err = j.file.Seek(whole, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, j.file.Close())
	}
	for _, s := range samples {
		j.all[s.key()] = s
	}
	return j, nil
}

// lock keeps others from writing to the folder until the file is closed, or this process
// ends however it may.
func (j *journal) lock() error {
	err := unix.Flock(int(j.file.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor fits
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s: another evaluation is writing to it; wait for its end, or name another folder with --out", filepath.Dir(j.path))
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", j.path, err)
	}
	return nil
}

// decodeJournal reads the whole lines, and says where they end.
func decodeJournal(r io.Reader, name string) (out []Sample, whole int64, err error) {
	in := bufio.NewReader(r)
	seen := map[sampleKey]bool{}
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // what is left is no line
			return out, whole, nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", name, err)
		}
		var s Sample
		if err := json.Unmarshal(bytes.TrimSpace(line), &s); err != nil {
			return nil, 0, fmt.Errorf("%s: line %d: %w; mend it or name another folder with --out", name, n, err)
		}
		if seen[s.key()] {
			return nil, 0, fmt.Errorf("%s: line %d: sample %d of problem %s of %s is there twice; take one of the lines away", name, n, s.Sample, s.Problem, s.Set)
		}
		seen[s.key()] = true
		out, whole = append(out, s), whole+int64(len(line))
	}
}

// readJournal reads the samples of a folder that no process writes to.
func readJournal(name string) ([]Sample, error) {
	f, err := os.Open(name) //nolint:gosec // the user names the folder
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	out, _, err := decodeJournal(f, name)
	sortSamples(out)
	return out, err
}

// ReadSamples reads the samples of an evaluation's folder.
func ReadSamples(folder string) ([]Sample, error) {
	return readJournal(filepath.Join(folder, journalName))
}

func (j *journal) has(k sampleKey) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.all[k]
	return ok
}

// add writes a sample. It is on disk when add returns.
func (j *journal) add(s Sample) error {
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.all[s.key()]; ok {
		return fmt.Errorf("sample %d of problem %s of %s was made twice", s.Sample, s.Problem, s.Set)
	}
	if j.failed != nil { // a line behind the piece of another one could not be read
		return j.failed
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		j.failed = err
		return err
	}
	j.all[s.key()] = s
	return j.file.Sync()
}

// samples are all, in an order.
func (j *journal) samples() []Sample {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]Sample, 0, len(j.all))
	for _, s := range j.all {
		out = append(out, s)
	}
	sortSamples(out)
	return out
}

func sortSamples(out []Sample) {
	slices.SortFunc(out, func(a, b Sample) int {
		return cmp.Or(cmp.Compare(a.Set, b.Set), cmp.Compare(a.Problem, b.Problem), cmp.Compare(a.Sample, b.Sample))
	})
}

func (j *journal) close() error { return j.file.Close() }

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
