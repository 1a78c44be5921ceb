package fileblob

import (
	"errors"
	"fmt"
	"syscall"

	"temper/internal/blob"
)

// explain adds to an error of the file system what kind it is and what to do.
func (s *Store) explain(err error) error { return explain(s.dir, err) }

func explain(dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("the disk of %s is full: free some space: %w (%w)", dir, blob.ErrUnavailable, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%s cannot be used: make it writable for this user or name another store: %w (%w)", dir, blob.ErrMisconfigured, err)
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ESTALE), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("the file system of %s fails: %w (%w)", dir, blob.ErrUnavailable, err)
	default:
		return err
	}
}
