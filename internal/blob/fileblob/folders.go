package fileblob

import (
	"os"
	"path"
	"slices"
	"sync"
)

// maxHeld bounds the folders that are held open.
const maxHeld = 64

// folders remembers which folders have durable names, up to the root of the store, so that
// a Put into one of them syncs that folder alone. It holds each of them open: a folder with
// the same inode is then the same folder, because no process renames folders, and an
// existing folder keeps its parents from being removed.
type folders struct {
	mu    sync.Mutex
	held  map[string]*os.File
	order []string // of held, the oldest first
}

// isDurable reports whether dir, which is open as f, is known to have a durable name.
func (d *folders) isDurable(dir string, f *os.File) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.held[dir]
	if known == nil {
		return false
	}
	a, err := known.Stat()
	if err != nil {
		return false
	}
	b, err := f.Stat()
	return err == nil && os.SameFile(a, b)
}

// remember takes over open folders whose names are durable.
func (d *folders) remember(found []openFolder) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range found {
		if d.held == nil {
			d.held = map[string]*os.File{}
		}
		d.forget(o.dir)
		d.held[o.dir], d.order = o.file, append(d.order, o.dir)
		if len(d.order) > maxHeld {
			d.forget(d.order[0])
		}
	}
}

// forget closes a folder that is held. The caller holds the lock.
func (d *folders) forget(dir string) {
	if f := d.held[dir]; f != nil {
		_ = f.Close() // opened for reading only
		delete(d.held, dir)
		d.order = slices.DeleteFunc(d.order, func(o string) bool { return o == dir })
	}
}

func (d *folders) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.order) > 0 {
		d.forget(d.order[0])
	}
}

// openFolder is a folder that was synced.
type openFolder struct {
	dir  string
	file *os.File
}

func closeAll(found []openFolder) {
	for _, o := range found {
		_ = o.file.Close() // opened for reading only
	}
}

// syncParents makes the entries of dir and of the directories above it durable, up to
// the first one that is known to have a durable name. A folder that is gone has lost
// its last key to a Delete.
func (s *Store) syncParents(dir string) error {
	var synced []openFolder
	for {
		f, err := s.root.Open(dir)
		if absent(err) && dir != "." {
			dir = path.Dir(dir)
			continue
		}
		if err == nil {
			synced = append(synced, openFolder{dir, f})
			err = s.syncFolder(f)
		}
		if err != nil {
			closeAll(synced)
			return err
		}
		if dir == "." || s.folders.isDurable(dir, f) {
			last := len(synced) - 1
			closeAll(synced[last:])
			s.folders.remember(synced[:last])
			return nil
		}
		dir = path.Dir(dir)
	}
}
