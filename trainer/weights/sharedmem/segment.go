package sharedmem

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"temper/internal/blob"
)

const (
	// page aligns the parts of a segment. One more page follows the last shard, because
	// kernels may read a vector behind the last value.
	page = 4096
	// maxHeader bounds the header of a segment, in bytes.
	maxHeader = 16 << 20
	// format is the version of a header.
	format = 1
	// suffix ends the name of a segment; the rest is the SHA-256 of a manifest.
	suffix = ".weights"
	making = "making-"
)

// errOther means that a segment holds something other than the policy.
var errOther = errors.New("shared weights are not those of the policy")

// header is JSON at the start of a segment, padded with spaces to the next page.
type header struct {
	Format int      `json:"format"`
	Run    string   `json:"run"`
	Policy blob.Ref `json:"policy"` // its manifest
	Shards []part   `json:"shards"`
}

// part is the place of a shard.
type part struct {
	SHA256 string `json:"sha256"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
}

// mapping is a mapped segment.
type mapping struct {
	file   *os.File // locked by the trainer that made it; nil for a reader
	path   string
	data   []byte
	header header
	users  int // guarded by the lock of Segments
	gone   bool
}

func align(n int64) int64 { return (n + page - 1) / page * page }

// layout places the shards behind a header that is large enough for its final text.
func layout(run string, sizes []int64) (h header, total int64) {
	h = header{Format: format, Run: run, Shards: make([]part, len(sizes))}
	at := align(int64(4096 + len(run)*6 + 200*len(sizes)))
	for i, size := range sizes {
		h.Shards[i] = part{Offset: at, Size: size}
		at = align(at + size)
	}
	return h, at + page
}

// create makes an empty segment, locked for the life of this process. It allocates all of its
// memory at once: a full file system is an error here, not a fault at a later write.
func create(dir string, h header, total int64) (_ *mapping, err error) {
	f, err := os.CreateTemp(dir, making) // 0600
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()), f.Close())
		}
	}()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, total); err != nil {
		return nil, fmt.Errorf("take %d bytes in %s: %w", total, dir, err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(total), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	return &mapping{file: f, path: f.Name(), data: data, header: h}, nil
}

// commit renames the segment after its policy. Then other processes find it.
func (m *mapping) commit(dir string) error {
	text, err := json.Marshal(m.header)
	if err != nil {
		return err
	}
	room := m.data[:m.header.Shards[0].Offset]
	if len(text)+1 > len(room) {
		return fmt.Errorf("header of %d bytes in a room of %d", len(text), len(room))
	}
	copy(room, text)
	for i := len(text); i < len(room); i++ {
		room[i] = ' '
	}
	room[len(room)-1] = '\n'
	if err := m.file.Chmod(0o400); err != nil {
		return err
	}
	path := filepath.Join(dir, m.header.Policy.SHA256+suffix)
	if err := os.Rename(m.path, path); err != nil {
		return err
	}
	m.path = path
	return nil
}

// shards returns the bytes of each shard.
func (m *mapping) shards() [][]byte {
	out := make([][]byte, len(m.header.Shards))
	for i, p := range m.header.Shards {
		out[i] = m.data[p.Offset : p.Offset+p.Size : p.Offset+p.Size]
	}
	return out
}

// unlink removes the name. Processes that have mapped the segment keep it.
func (m *mapping) unlink() error {
	err := os.Remove(m.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return err
}

func (m *mapping) close() error {
	err := unix.Munmap(m.data)
	m.data = nil
	if m.file != nil {
		err = errors.Join(err, m.file.Close())
	}
	return err
}

// open maps the segment of a policy for reading. It refuses a file of another user, and one
// that others may write. Errors: os.ErrNotExist; errOther with the reason.
func open(dir string, policy blob.Ref) (*mapping, error) {
	name := filepath.Join(dir, policy.SHA256+suffix)
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the mapping stays
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 || st.Size < page {
		return nil, fmt.Errorf("%s: mode %o of user %d, %d bytes: %w", name, st.Mode&0o7777, st.Uid, st.Size, errOther)
	}
	h, err := readHeader(f, st.Size)
	if err == nil && h.Policy != policy {
		err = fmt.Errorf("it says that it is %s of run %s: %w", h.Policy.Key, h.Run, errOther)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	return &mapping{path: name, data: data, header: h}, nil
}

// readHeader reads and checks a header. Errors: errOther.
func readHeader(f io.ReaderAt, size int64) (h header, err error) {
	dec := json.NewDecoder(io.NewSectionReader(f, 0, min(size, maxHeader)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h); err != nil {
		return h, fmt.Errorf("header: %w: %w", err, errOther)
	}
	if h.Format != format {
		return h, fmt.Errorf("format %d, this program reads %d: %w", h.Format, format, errOther)
	}
	for _, p := range h.Shards {
		if p.Offset < page || p.Offset%page != 0 || p.Size < 0 || p.Size > size || p.Offset > size-page-p.Size {
			return h, fmt.Errorf("a shard of %d bytes at %d in %d: %w", p.Size, p.Offset, size, errOther)
		}
	}
	return h, nil
}

// isSegment reports whether a file name belongs to a segment, finished or not.
func isSegment(name string) bool {
	return strings.HasSuffix(name, suffix) || strings.HasPrefix(name, making)
}
