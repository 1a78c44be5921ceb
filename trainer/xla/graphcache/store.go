package graphcache

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Key identifies a compiled program.
type Key [sha256.Size]byte

// ErrRefused means that an entry cannot be trusted: it is damaged, or another user wrote it.
var ErrRefused = errors.New("refused")

// Store is a folder of compiled programs. Its content is executed, so only its owner may write
// there. Several processes may use it at the same time.
type Store struct {
	dir   string
	limit int64
}

// An entry is a header (these bytes, its key, the hash of the program, the program's length)
// and the program.
const magic = "temper graph 1\n"

const headerSize = len(magic) + 2*sha256.Size + 8

const (
	suffix = ".graph"
	unborn = ".tmp-" // prefix of a file that is being written
	// orphaned is the age from which the writer of such a file is dead.
	orphaned = time.Hour
)

// OpenStore opens the folder, after it created a missing one. The entries take up to limit
// bytes; the least recently used ones are removed.
func OpenStore(dir string, limit int64) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	switch {
	case !info.IsDir():
		return nil, fmt.Errorf("%s is no folder", dir)
	case !isOwn(info):
		return nil, fmt.Errorf("%s belongs to another user, or others may enter it: want a folder of your own with permissions 0700", dir)
	}
	return &Store{dir: dir, limit: limit}, nil
}

// isOwn reports whether only this user can write to a file.
func isOwn(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid() && info.Mode().Perm()&0o077 == 0
}

func (s *Store) path(k Key) string { return filepath.Join(s.dir, hex.EncodeToString(k[:])+suffix) }

// Get returns the program of a key. Errors: fs.ErrNotExist, ErrRefused.
func (s *Store) Get(k Key) ([]byte, error) {
	f, err := os.OpenFile(s.path(k), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s: %w: a link", s.path(k), ErrRefused)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	program, err := readEntry(f, k)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", s.path(k), ErrRefused, err)
	}
	now := time.Now()
	_ = os.Chtimes(s.path(k), now, now) // best effort: it orders the entries by use
	return program, nil
}

// readEntry reads the program of an entry of this user for that key.
func readEntry(f *os.File, k Key) ([]byte, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || !isOwn(info):
		return nil, errors.New("not a file of this user alone")
	case info.Size() < int64(headerSize):
		return nil, fmt.Errorf("%d bytes are too few", info.Size())
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	if want := header(k, data[headerSize:]); !bytes.Equal(data[:headerSize], want) {
		return nil, errors.New("damaged, or of another program")
	}
	return data[headerSize:], nil
}

func header(k Key, program []byte) []byte {
	sum := sha256.Sum256(program)
	out := slices.Concat([]byte(magic), k[:], sum[:])
	return binary.BigEndian.AppendUint64(out, uint64(len(program)))
}

// Put replaces the entry of a key as a whole. It does not store a program larger than the
// limit.
func (s *Store) Put(k Key, program []byte) error {
	if int64(headerSize+len(program)) > s.limit {
		return nil
	}
	f, err := os.CreateTemp(s.dir, unborn+"*") // with permissions 0600
	if err != nil {
		return err
	}
	_, err = f.Write(slices.Concat(header(k, program), program))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.path(k))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return s.makeRoom()
}

// makeRoom removes the least recently used entries until the rest is within the limit, and
// the files of dead writers.
func (s *Store) makeRoom() error {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var entries []fs.FileInfo
	total := int64(0)
	for _, f := range files {
		info, err := f.Info()
		switch {
		case err != nil: // another process removed it
		case strings.HasPrefix(f.Name(), unborn):
			if time.Since(info.ModTime()) > orphaned {
				_ = os.Remove(filepath.Join(s.dir, f.Name())) // the next process tries again
			}
		case strings.HasSuffix(f.Name(), suffix):
			entries = append(entries, info)
			total += info.Size()
		}
	}
	slices.SortFunc(entries, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, e := range entries {
		if total <= s.limit {
			break
		}
		if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= e.Size()
	}
	return nil
}
