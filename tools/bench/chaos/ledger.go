package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Setting is what decides the trials of a soak. Trials of one setting and number are
// the same trial, and a soak makes each once.
type Setting struct {
	Build   string   `json:"build"`
	Machine string   `json:"machine"`
	Config  string   `json:"config"`
	Digest  string   `json:"config_digest"` // of the whole configuration
	Store   string   `json:"store"`
	Seed    uint64   `json:"seed"`
	Kills   int      `json:"kills"`
	Victims []string `json:"victims"`
	Points  []string `json:"points,omitempty"`
	Elastic bool     `json:"elastic,omitempty"`
}

// Kinds of lines of a ledger.
const (
	// LineCalm is an undisturbed run, with what it left.
	LineCalm = "calm"
	// LineBegin comes before a trial. One without a trial was interrupted: nobody knows
	// what it would have shown, and it counts for nothing.
	LineBegin = "begin"
	// LineTrial is a trial that was carried out and looked at.
	LineTrial = "trial"
)

// Line is one line of a ledger, and says all that it needs by itself.
type Line struct {
	Kind string    `json:"kind"`
	Time time.Time `json:"time"`
	// ID is the same for a trial and its beginning, and for nothing else.
	ID      string  `json:"id"`
	Setting Setting `json:"setting"`
	// Run is the number of the trial, from 1.
	Run int `json:"run,omitempty"`
	// Result is the SHA-256 of what an undisturbed run left, without times.
	Result  string  `json:"result,omitempty"`
	Objects int     `json:"objects,omitempty"`
	Wall    Seconds `json:"wall_s,omitempty"`
	Trial   *Trial  `json:"trial,omitempty"`
}

// Ledger is a file of lines that only grows. It is safe against a death at any
// moment: a line is there as a whole or not at all.
type Ledger struct {
	file  *os.File
	lines []Line
}

// OpenLedger opens or makes the file, for one process at a time.
func OpenLedger(path string) (*Ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	l := &Ledger{file: f}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%s is in use by another process: give each its own ledger and add them up with: temper-bench chaos report", path)
	}
	if err == nil {
		err = l.read(path)
	}
	if err == nil {
		err = syncFolder(path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

// read loads the lines, and cuts off the beginning of one whose writer died.
func (l *Ledger) read(path string) error {
	data, err := io.ReadAll(l.file)
	if err != nil {
		return err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	if l.lines, err = parseLines(path, whole); err != nil {
		return err
	}
	if len(whole) < len(data) {
		return l.file.Truncate(int64(len(whole)))
	}
	return nil
}

// ReadLedger reads the whole lines of a file that may be growing.
func ReadLedger(path string) ([]Line, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	return parseLines(path, data[:bytes.LastIndexByte(data, '\n')+1])
}

func parseLines(path string, data []byte) ([]Line, error) {
	var out []Line
	for i, text := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		if len(data) == 0 {
			break
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, fmt.Errorf("%s: line %d is damaged: %w; take it out of the file, and its trial is made again", path, i+1, err)
		}
		out = append(out, line)
	}
	return out, nil
}

// Append adds a line, and returns when it is on the disk.
func (l *Ledger) Append(line Line) error {
	line.Time = time.Now().UTC()
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if _, err = l.file.Write(append(text, '\n')); err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return err
	}
	l.lines = append(l.lines, line)
	return nil
}

// Lines are all lines of the file.
func (l *Ledger) Lines() []Line { return slices.Clone(l.lines) }

// Done says whether the ledger has a trial.
func (l *Ledger) Done(s Setting, run int) bool {
	return slices.ContainsFunc(l.lines, func(line Line) bool {
		return line.Kind == LineTrial && line.Run == run && line.Setting.equal(s)
	})
}

// Close gives the file free for others.
func (l *Ledger) Close() error { return l.file.Close() }

func (s Setting) equal(other Setting) bool {
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// syncFolder brings the name of a new file to the disk.
func syncFolder(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
