package importer

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"temper/internal/dataset"
)

// The files of an import under way stand beside its output, and go with its end.
const (
	partEnding  = ".part"       // the rows so far
	seenEnding  = ".part.seen"  // the keys of what was kept
	stateEnding = ".part.state" // how far the others count
)

// The reports stand beside the output.
const (
	jsonEnding     = ".report.json"
	markdownEnding = ".report.md"
)

// stateVersion is the form of the state, and of the keys beside it.
const stateVersion = 2

// state says up to where the files of an import count.
type state struct {
	Version int `json:"version"`
	// Of is a hash of the files that are read, and of the options.
	Of string `json:"of"`
	// File is the number of the file that is being read.
	File int `json:"file"`
	// Bytes and Keys are what counts of the rows and of the keys.
	Bytes  int64   `json:"bytes"`
	Keys   int64   `json:"keys"`
	Report *Report `json:"report"`
}

// output writes rows and the checkpoint from which an import resumes.
type output struct {
	path  string
	state state
	part  *os.File
	keys  *os.File
	rows  *bufio.Writer
	marks *bufio.Writer
	bytes int64
	count int64
	seen  map[dataset.Key]struct{}
}

// openOutput begins an import or resumes one of the same files and options.
func openOutput(files []string, out string, opts Options) (*output, error) {
	if err := checkOutput(out, slices.Concat(files, opts.AlsoRead), opts.Overwrite); err != nil {
		return nil, err
	}
	of, err := identify(files, opts)
	if err != nil {
		return nil, err
	}
	o := &output{path: out, seen: map[dataset.Key]struct{}{}}
	if o.part, err = openPart(out); err != nil {
		return nil, err
	}
	if err = o.readState(of); err == nil {
		err = o.cut(o.part, o.state.Bytes)
	}
	if err == nil {
		o.keys, err = os.OpenFile(out+seenEnding, os.O_RDWR|os.O_CREATE, 0o644)
	}
	if err != nil {
		return nil, errors.Join(err, o.part.Close())
	}
	o.bytes, o.count = o.state.Bytes, o.state.Keys
	if err = o.cut(o.keys, o.state.Keys*int64(len(dataset.Key{}))); err == nil {
		err = o.readKeys()
	}
	if err != nil {
		return nil, errors.Join(err, o.part.Close(), o.keys.Close())
	}
	o.rows, o.marks = bufio.NewWriterSize(o.part, 256<<10), bufio.NewWriterSize(o.keys, 64<<10)
	return o, nil
}

// checkOutput refuses an output whose files would replace one that is read, or another file
// without overwrite.
func checkOutput(out string, inputs []string, overwrite bool) error {
	if err := notRead(out, []string{"", partEnding, seenEnding, stateEnding, jsonEnding, markdownEnding}, inputs); err != nil {
		return err
	}
	info, err := os.Stat(out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !overwrite:
		return fmt.Errorf("%s %w", out, ErrExists)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no file that can be replaced", out)
	}
	return nil
}

// identify hashes what an import is a function of.
func identify(files []string, opts Options) (string, error) {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return "", err
		}
		if err := enc.Encode([]any{f, info.Size(), info.ModTime().UnixNano()}); err != nil {
			return "", err
		}
	}
	if err := enc.Encode(opts); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// readState takes the state of an import of the same, else an empty one.
func (o *output) readState(of string) error {
	o.state = state{Version: stateVersion, Of: of, Report: newReport()}
	data, err := os.ReadFile(o.path + stateEnding)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	old := state{Report: newReport()}
	if json.Unmarshal(data, &old) == nil && old.Version == stateVersion && old.Of == of && old.Report != nil {
		o.state = old
	}
	return nil
}

// cut takes away what a file has behind its first n bytes, which count.
func (o *output) cut(f *os.File, n int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < n {
		return fmt.Errorf("%s has %d bytes, but %d were written: remove %s to begin anew", f.Name(), info.Size(), n, o.path+stateEnding)
	}
	return f.Truncate(n)
}

// readKeys reads the keys of what was kept, and goes to the end of both files.
func (o *output) readKeys() error {
	in := bufio.NewReaderSize(o.keys, 256<<10)
	var key dataset.Key
	for range o.count {
		if _, err := io.ReadFull(in, key[:]); err != nil {
			return fmt.Errorf("%s: %w", o.path+seenEnding, err)
		}
		o.seen[key] = struct{}{}
	}
	for _, f := range []*os.File{o.part, o.keys} {
		if _, err := f.Seek(0, io.SeekEnd); err != nil {
			return err
		}
	}
	return nil
}

func (o *output) write(line []byte, key dataset.Key) error {
	o.remember(key)
	o.bytes += int64(len(line))
	_, err := o.rows.Write(line)
	return err
}

// remember notes a key for a continuation. An error of the disk comes up in checkpoint.
func (o *output) remember(key dataset.Key) {
	o.count++
	_, _ = o.marks.Write(key[:]) // a bufio.Writer keeps its error for Flush
}

// checkpoint makes the rows read so far durable, with the place from which an import
// resumes. File is the number of the file that is being read.
func (o *output) checkpoint(file int, r *Report) error {
	for _, w := range []*bufio.Writer{o.rows, o.marks} {
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for _, f := range []*os.File{o.part, o.keys} {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	o.state.File, o.state.Bytes, o.state.Keys, o.state.Report = file, o.bytes, o.count, r
	data, err := json.Marshal(o.state)
	if err != nil {
		return err
	}
	return replaceFile(o.path+stateEnding, data)
}

// suspend closes the files. keep leaves the last checkpoint as it is.
func (o *output) suspend(keep bool, file int, r *Report) error {
	var err error
	if !keep {
		err = o.checkpoint(file, r)
	}
	return errors.Join(err, o.part.Close(), o.keys.Close())
}

// discard removes all files of the import.
func (o *output) discard() error {
	err := o.remove(stateEnding, seenEnding, partEnding)
	return errors.Join(err, o.part.Close(), o.keys.Close())
}

// remove removes files of the import. They are this process's while part is open.
func (o *output) remove(endings ...string) error {
	var errs []error
	for _, ending := range endings {
		if err := os.Remove(o.path + ending); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// finish gives the output its name and writes the report beside it.
func (o *output) finish(r *Report) error {
	for _, w := range []*bufio.Writer{o.rows, o.marks} {
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if _, err := o.part.Seek(0, io.SeekStart); err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(h, o.part)
	if err != nil {
		return err
	}
	r.listLargest()
	r.Out, r.OutBytes, r.OutSHA256 = o.path, n, hex.EncodeToString(h.Sum(nil))
	if err := WriteReport(o.path, r); err != nil {
		return err
	}
	if err := o.part.Sync(); err != nil {
		return err
	}
	// The state goes first: without the rows it would keep the next import from its begin.
	if err := o.remove(stateEnding, seenEnding); err != nil {
		return err
	}
	if err := os.Rename(o.path+partEnding, o.path); err != nil {
		return err
	}
	return errors.Join(o.part.Close(), o.keys.Close())
}

// WriteReport writes a report beside an output, as OUT.report.json and OUT.report.md.
func WriteReport(out string, r *Report) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(out+jsonEnding, append(data, '\n')); err != nil {
		return err
	}
	f, err := os.Create(out + markdownEnding)
	if err != nil {
		return err
	}
	return errors.Join(r.Markdown(f), f.Close())
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
