package importer

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrExists means that an output has a file of its name already, which stays as it is.
var ErrExists = errors.New("exists already: remove it or choose another name")

// ErrIsRead means that a file of an output would replace one that is read for it.
var ErrIsRead = errors.New("is read, and would be replaced: choose another output")

// notRead refuses an output one of whose files, which have its name with an ending, is an input:
// ErrIsRead.
func notRead(out string, endings, inputs []string) error {
	for _, ending := range endings {
		written, err := os.Stat(out + ending)
		if err != nil {
			continue // what cannot be looked at cannot be read either, and fails by itself
		}
		for _, in := range inputs {
			if read, err := os.Stat(in); err == nil && os.SameFile(written, read) {
				return fmt.Errorf("%s %w", in, ErrIsRead)
			}
		}
	}
	return nil
}

// WriteWhole writes a new file by fill, which may read inputs. Until it is whole it is path.part,
// so that a process that is killed leaves no half of it under its name. An error of fill leaves
// nothing; ErrExists, ErrIsRead.
func WriteWhole(path string, inputs []string, fill func(*bufio.Writer) error) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s %w", path, ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := notRead(path, []string{partEnding}, inputs); err != nil {
		return err
	}
	part := path + partEnding
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 256<<10)
	if err = fill(w); err == nil {
		err = errors.Join(w.Flush(), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return nil
}
