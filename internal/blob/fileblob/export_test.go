package fileblob

import "os"

// OnSyncFolder calls f before each sync of a folder; an error of f stands for one of
// the disk.
func (s *Store) OnSyncFolder(f func(name string) error) {
	s.syncFolder = func(d *os.File) error {
		if err := f(d.Name()); err != nil {
			return err
		}
		return d.Sync()
	}
}

// NumHeld is the number of folders that are held open.
func (s *Store) NumHeld() int { return len(s.folders.held) }

// MaxHeld bounds it.
const MaxHeld = maxHeld
