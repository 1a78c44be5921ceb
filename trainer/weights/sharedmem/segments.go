package sharedmem

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"temper/internal/blob"
	"temper/trainer/checkpoint"
)

// Memory is the file system in memory that all processes of a host share.
const Memory = "/dev/shm"

// Config of Segments.
type Config struct {
	// Folder holds the segments of all processes of this user on the host; Open creates it
	// for this user alone. See DefaultFolder.
	Folder string
	// Available returns the bytes of memory that this process may still take; nil is no
	// limit. A segment takes at most half of it.
	Available func() int64
	Log       *slog.Logger
}

// DefaultFolder returns the folder of this user in Memory.
func DefaultFolder() string { return filepath.Join(Memory, fmt.Sprintf("temper-%d", os.Geteuid())) }

// Segments are the segments of this host, for a trainer and its engines. Its methods may be
// called concurrently; a nil Segments is empty.
type Segments struct {
	Config
	mu   sync.Mutex
	own  []*mapping // made by this process, the newest last; one a run, two while one is made
	full bool       // the lack of memory was logged
}

// Open prepares the folder of segments and deletes the segments of dead processes.
func Open(c Config) (*Segments, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.Mkdir(c.Folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("shared weights: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(c.Folder, &st); err != nil {
		return nil, fmt.Errorf("shared weights: %s: %w", c.Folder, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return nil, fmt.Errorf("shared weights: %s belongs to user %d with mode %o: want a folder of user %d alone", c.Folder, st.Uid, st.Mode&0o7777, os.Geteuid())
	}
	h := &Segments{Config: c}
	return h, h.sweep()
}

// sweep deletes the segments of dead processes, whose locks the kernel has released.
func (h *Segments) sweep() error {
	entries, err := os.ReadDir(h.Folder)
	if err != nil {
		return fmt.Errorf("shared weights: %w", err)
	}
	for _, e := range entries {
		if !isSegment(e.Name()) {
			continue
		}
		name := filepath.Join(h.Folder, e.Name())
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue // removed meanwhile, or not a segment
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && !young(f) {
			err = os.Remove(name)
		}
		if err = errors.Join(err, f.Close()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("shared weights: %w", err)
		}
	}
	return nil
}

// young reports whether a file is empty: its creator is about to lock it.
func young(f *os.File) bool {
	info, err := f.Stat()
	return err != nil || info.Size() == 0
}

// ForRun returns memory for the policies of a run, nil for a nil Segments.
func (h *Segments) ForRun(run string) checkpoint.ShardMemory {
	if h == nil {
		return nil
	}
	return runMemory{h, run}
}

type runMemory struct {
	host *Segments
	run  string
}

// Take implements checkpoint.ShardMemory. It first drops the segment of the run's last
// policy: an engine that has not opened it reads the store.
func (r runMemory) Take(sizes []int64) (shards [][]byte, keep func(blob.Ref, []string), drop func(), err error) {
	h := r.host
	h.forget(func(m *mapping) bool { return m.header.Run == r.run })
	head, total := layout(r.run, sizes)
	m, err := h.make(head, total)
	if err != nil {
		h.sayFull(r.run, err)
		return nil, nil, nil, err
	}
	keep = func(policy blob.Ref, sums []string) {
		m.header.Policy = policy
		for i := range m.header.Shards {
			m.header.Shards[i].SHA256 = sums[i]
		}
		if err := m.commit(h.Folder); err != nil {
			h.Log.Warn("weights are not shared: engines read the store", "run_id", r.run, "err", err)
			h.discard(m)
			return
		}
		h.mu.Lock()
		h.own, h.full = append(h.own, m), false
		h.mu.Unlock()
	}
	return m.shards(), keep, func() { h.discard(m) }, nil
}

func (h *Segments) make(head header, total int64) (*mapping, error) {
	if len(head.Shards) == 0 {
		return nil, errors.New("no shards")
	}
	if h.Available != nil {
		if n := h.Available(); total > n/2 {
			return nil, fmt.Errorf("%d bytes are more than half of the %d that this process may still take", total, n)
		}
	}
	if err := h.sweep(); err != nil {
		return nil, err
	}
	return create(h.Folder, head, total)
}

// sayFull logs the lack of memory once.
func (h *Segments) sayFull(run string, err error) {
	h.mu.Lock()
	said := h.full
	h.full = true
	h.mu.Unlock()
	if !said {
		h.Log.Warn("no room to share weights: engines read the store", "run_id", run, "folder", h.Folder, "err", err)
	}
}

// discard deletes an unused segment.
func (h *Segments) discard(m *mapping) {
	if err := errors.Join(m.unlink(), m.close()); err != nil {
		h.Log.Warn("shared weights were not deleted", "path", m.path, "err", err)
	}
}

// forget unlinks segments of this process, and unmaps each when no engine of this process
// reads it.
func (h *Segments) forget(which func(*mapping) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.own = slices.DeleteFunc(h.own, func(m *mapping) bool {
		if !which(m) {
			return false
		}
		m.gone = true
		if err := m.unlink(); err != nil {
			h.Log.Warn("shared weights were not deleted", "path", m.path, "err", err)
		}
		h.closeUnused(m)
		return true
	})
}

// closeUnused unmaps a segment without a name and a user. The caller holds the lock.
func (h *Segments) closeUnused(m *mapping) {
	if !m.gone || m.users > 0 {
		return
	}
	if err := m.close(); err != nil {
		h.Log.Warn("shared weights were not unmapped", "path", m.path, "err", err)
	}
}

// Close deletes the segments of this process. Engines that have mapped one keep it.
func (h *Segments) Close() {
	if h != nil {
		h.forget(func(*mapping) bool { return true })
	}
}

// find returns the segment of a policy, nil for none, and whether this process made it. The
// caller calls done when it has finished. Errors: errOther.
func (h *Segments) find(policy blob.Ref) (m *mapping, made bool, done func() error, err error) {
	if h == nil {
		return nil, false, nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.own, func(m *mapping) bool { return m.header.Policy == policy })
	if i >= 0 {
		m = h.own[i]
		m.users++
		return m, true, func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			m.users--
			h.closeUnused(m)
			return nil
		}, nil
	}
	m, err = open(h.Folder, policy)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil, nil
	}
	if err != nil {
		return nil, false, nil, err
	}
	return m, false, m.close, nil
}
