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

// Memory is the file system of memory that all processes of a host share.
const Memory = "/dev/shm"

// Config of Segments.
type Config struct {
	// Folder is where the processes of this host find each other's segments; it is made
	// for this user alone. See DefaultFolder.
	Folder string
	// Available is the memory in bytes that this process may still take; nil asks nobody.
	// A segment takes half of it at most.
	Available func() int64
	Log       *slog.Logger
}

// DefaultFolder is the folder of this user in the memory of the host.
func DefaultFolder() string { return filepath.Join(Memory, fmt.Sprintf("temper-%d", os.Geteuid())) }

// Segments gives the segments of this host to a trainer and to engines. Its methods may be
// called concurrently; a nil Segments has none.
type Segments struct {
	Config
	mu   sync.Mutex
	own  []*mapping // made here, the newest last; one for each run, but while another is made
	full bool       // the log says why there is no room
}

// Open finds the folder of segments and deletes those of processes that died.
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

// sweep deletes the segments whose makers are dead: the kernel has given their locks back.
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
			continue // gone meanwhile, or none of ours
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

// young reports whether a file has no content: its maker is about to lock it.
func young(f *os.File) bool {
	info, err := f.Stat()
	return err != nil || info.Size() == 0
}

// ForRun returns memory for the policies of a run; nil without a host.
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

// Take implements checkpoint.ShardMemory. The segment of the run's last policy goes first: who
// has not taken it by now reads the store.
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

// sayFull says once why there is no room.
func (h *Segments) sayFull(run string, err error) {
	h.mu.Lock()
	said := h.full
	h.full = true
	h.mu.Unlock()
	if !said {
		h.Log.Warn("no room to share weights: engines read the store", "run_id", run, "folder", h.Folder, "err", err)
	}
}

// discard deletes a segment that nobody uses.
func (h *Segments) discard(m *mapping) {
	if err := errors.Join(m.unlink(), m.close()); err != nil {
		h.Log.Warn("shared weights were not deleted", "path", m.path, "err", err)
	}
}

// forget takes the names of own segments away, and their memory once no engine here reads
// them.
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

// closeUnused ends a mapping that has no name and no user. The lock is held.
func (h *Segments) closeUnused(m *mapping) {
	if !m.gone || m.users > 0 {
		return
	}
	if err := m.close(); err != nil {
		h.Log.Warn("shared weights were not unmapped", "path", m.path, "err", err)
	}
}

// Close deletes the segments of this process. Engines that read them go on.
func (h *Segments) Close() {
	if h != nil {
		h.forget(func(*mapping) bool { return true })
	}
}

// find returns the segment of a policy, and whether this process made it; nil where there
// is none. done gives it back. Errors: errOther.
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
