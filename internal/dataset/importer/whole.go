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

// WriteWhole writes a new file by fill. Until it is whole it is path.part, so that a process
// that is killed leaves no half of it under its name. An error of fill leaves nothing; ErrExists.
func WriteWhole(path string, fill func(*bufio.Writer) error) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s %w", path, ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
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
