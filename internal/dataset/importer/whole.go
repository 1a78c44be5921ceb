package importer

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
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

// ErrBusy means that another process writes an output of the same name just now.
var ErrBusy = errors.New("is being written by another command: wait for its end or choose another name")

// openPart opens path.part, the file of an output under way. It is this process's alone until it
// is closed, or the process ends however it may. Errors: ErrBusy.
func openPart(path string) (*os.File, error) {
	f, err := os.OpenFile(path+partEnding, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || err == nil && !isNamed(f) { // its owner has just given it the name of the output
		err = fmt.Errorf("%s %w", path, ErrBusy)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// isNamed reports whether a file is still what its name stands for.
func isNamed(f *os.File) bool {
	opened, err := f.Stat()
	named, namedErr := os.Stat(f.Name())
	return err == nil && namedErr == nil && os.SameFile(opened, named)
}

// WriteWhole writes a new file by fill, which may read inputs. Until it is whole it is path.part,
// so that a process that is killed leaves no half of it under its name. An error of fill leaves
// nothing; ErrExists, ErrIsRead, ErrBusy.
func WriteWhole(path string, inputs []string, fill func(*bufio.Writer) error) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s %w", path, ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := notRead(path, []string{partEnding}, inputs); err != nil {
		return err
	}
	f, err := openPart(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 256<<10)
	if err = f.Truncate(0); err == nil {
		err = fill(w)
	}
	if err == nil {
		err = errors.Join(w.Flush(), f.Sync())
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return errors.Join(err, f.Close())
}
