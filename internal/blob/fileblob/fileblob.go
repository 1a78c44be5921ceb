// Package fileblob owns a blob.Store on a directory of a local or shared file
// system: one regular file per key. It does not cache or watch; the one lock it
// knows orders swaps.
//
// Invariant: a file appears under its key by one rename or link of a complete,
// synced file, so that no reader and no crash can find part of a blob there.
package fileblob

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"temper/internal/blob"
)

const (
	// staging is the folder of files under way, in the same file system as the keys.
	staging = ".staging"
	// staleAfter is the age at which a staged file is taken for the remains of a
	// process that died.
	staleAfter = 24 * time.Hour
	// maxRaces is how often in a row a Put may lose its folder to a Delete before
	// the error is taken for one that lasts.
	maxRaces = 100
)

// Store keeps each blob as a file below one directory.
type Store struct {
	dir     string // absolute
	root    *os.Root
	folders folders
	// syncFolder makes the entries of a folder durable.
	syncFolder func(*os.File) error
}

var _ blob.Store = (*Store)(nil)

// New opens the store in dir and creates the directory when it is missing.
// Symbolic links that lead out of dir are refused.
func New(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("file store %s: %w", dir, err)
	}
	if err := os.MkdirAll(filepath.Join(abs, staging), 0o755); err != nil {
		return nil, fmt.Errorf("file store %s: %w", dir, explain(abs, err))
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("file store %s: %w", dir, err)
	}
	s := &Store{dir: abs, root: root, syncFolder: (*os.File).Sync}
	s.sweep()
	return s, nil
}

// Close releases the directory. The store is unusable afterwards.
func (s *Store) Close() error {
	s.folders.close()
	return s.root.Close()
}

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	if err := checkKey(key); err != nil {
		return blob.Ref{}, err
	}
	if cond == blob.IfAbsent {
		if _, err := s.root.Lstat(key); err == nil { // spares the copy; the link decides
			return blob.Ref{}, fmt.Errorf("put %s: %w", key, blob.ErrExists)
		}
	}
	var sum hash.Hash
	var size int64
	temp, err := s.stage(func(f *os.File) (err error) {
		sum, size, err = copyHashed(ctx, f, r)
		return err
	})
	if err != nil {
		return blob.Ref{}, fmt.Errorf("put %s: %w", key, s.explain(err))
	}
	// After a rename the name is gone already; a leftover is swept by a later New.
	defer s.root.Remove(temp) //nolint:errcheck // see above
	if err := s.install(temp, key, cond); err != nil {
		return blob.Ref{}, fmt.Errorf("put %s: %w", key, s.explain(err))
	}
	return blob.Ref{Key: key, SHA256: hex.EncodeToString(sum.Sum(nil)), Size: size}, nil
}

// stage creates a new file, calls fill on it, syncs it and returns its name.
func (s *Store) stage(fill func(*os.File) error) (name string, err error) {
	f, err := os.CreateTemp(filepath.Join(s.dir, staging), "put-*")
	if err != nil {
		return "", err
	}
	name = path.Join(staging, filepath.Base(f.Name()))
	err = fill(f)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = s.root.Remove(name) // a leftover is swept by a later New
		return "", err
	}
	return name, nil
}

// install gives the staged file its key and makes the name durable.
func (s *Store) install(temp, key string, cond blob.Condition) error {
	parent := path.Dir(key)
	for try := 1; ; try++ {
		err := s.root.MkdirAll(parent, 0o755)
		if err == nil {
			err = s.name(temp, key, cond)
		}
		if err == nil {
			return s.syncParents(parent)
		}
		// A Delete that removes the empty folder meanwhile shows as either: a folder
		// that is made by another is there for mkdir and gone for a reader.
		raced := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist)
		if !raced || try == maxRaces {
			return err
		}
	}
}

// name gives the staged file its key, in a folder that is there.
func (s *Store) name(temp, key string, cond blob.Condition) error {
	switch cond {
	case blob.IfAbsent:
		err := s.root.Link(temp, key)
		if errors.Is(err, fs.ErrExist) {
			return blob.ErrExists
		}
		return err
	case blob.Always:
		return s.root.Rename(temp, key)
	default:
		return fmt.Errorf("condition %d: want Always or IfAbsent", cond)
	}
}

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	f, err := s.open(ctx, key)
	if err != nil {
		return nil, err // not a nil file in an interface
	}
	return f, nil
}

// open opens the file of a key.
func (s *Store) open(ctx context.Context, key string) (*os.File, error) {
	if err := errors.Join(ctx.Err(), checkKey(key)); err != nil {
		return nil, err
	}
	f, err := s.root.Open(key)
	if err != nil {
		return nil, notExist("get", key, s.explain(err))
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close() // opened for reading only
		return nil, notExist("get", key, errors.Join(err, fs.ErrNotExist))
	}
	return f, nil
}

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := errors.Join(ctx.Err(), checkKey(key)); err != nil {
		return blob.Info{}, err
	}
	info, err := s.root.Stat(key)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return blob.Info{}, notExist("stat", key, err)
	}
	return blob.Info{Key: key, Size: info.Size(), ModTime: info.ModTime()}, nil
}

// List implements blob.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	dir := "."
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		dir = prefix[:i]
	}
	if !fs.ValidPath(dir) {
		return nil, fmt.Errorf("list %q: want the prefix of a clean relative path", prefix)
	}
	var out []blob.Info
	err := fs.WalkDir(s.root.FS(), dir, func(key string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			return nil // the prefix has no folder, or a concurrent Delete was faster
		case err != nil:
			return err
		case entry.IsDir() && (key == staging || !overlaps(key+"/", prefix)):
			if key == "." {
				return nil
			}
			return fs.SkipDir
		case !entry.Type().IsRegular() || !strings.HasPrefix(key, prefix):
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		out = append(out, blob.Info{Key: key, Size: info.Size(), ModTime: info.ModTime()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", prefix, err)
	}
	slices.SortFunc(out, func(a, b blob.Info) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// ListFolder implements blob.Store.
func (s *Store) ListFolder(ctx context.Context, folder string) (blobs []blob.Info, folders []string, err error) {
	if err := errors.Join(ctx.Err(), blob.CheckFolder(folder)); err != nil {
		return nil, nil, err
	}
	entries, err := fs.ReadDir(s.root.FS(), cmp.Or(folder, "."))
	if err != nil && !absent(err) {
		return nil, nil, fmt.Errorf("list folder %q: %w", folder, s.explain(err))
	}
	for _, entry := range entries {
		key := path.Join(folder, entry.Name())
		if entry.IsDir() && key != staging {
			folders = append(folders, entry.Name())
		}
		if !entry.Type().IsRegular() {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // a concurrent Delete was faster
		}
		if err != nil {
			return nil, nil, fmt.Errorf("list folder %q: %w", folder, err)
		}
		blobs = append(blobs, blob.Info{Key: key, Size: info.Size(), ModTime: info.ModTime()})
	}
	return blobs, folders, nil // ReadDir sorts
}

// Delete implements blob.Store. Folders that become empty go; a concurrent Put
// makes its own again.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := errors.Join(ctx.Err(), checkKey(key)); err != nil {
		return err
	}
	info, err := s.root.Lstat(key)
	if err == nil && !info.IsDir() {
		err = s.root.Remove(key)
	}
	if err != nil && !absent(err) {
		return s.explain(err)
	}
	s.removeEmpty(path.Dir(key))
	return nil
}

// removeEmpty removes dir and the folders above it until one is not empty or another
// process has removed it. It is best effort: an empty folder is no key.
func (s *Store) removeEmpty(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		parent, err := s.root.Open(path.Dir(dir))
		if err != nil {
			return
		}
		// Only rmdir: the name may belong to a blob now.
		err = unix.Unlinkat(int(parent.Fd()), path.Base(dir), unix.AT_REMOVEDIR)
		_ = parent.Close() // opened for reading only
		if err != nil {
			return
		}
	}
}

// Locate returns the absolute path of the key's file.
func (s *Store) Locate(key string) string { return filepath.Join(s.dir, filepath.FromSlash(key)) }

// sweep removes what processes that died left behind. It is best effort: the
// files do no harm but fill the disk.
func (s *Store) sweep() {
	entries, err := fs.ReadDir(s.root.FS(), staging)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > staleAfter {
			_ = s.root.Remove(path.Join(staging, entry.Name()))
		}
	}
}

// overlaps reports whether keys below dir can have the prefix.
func overlaps(dir, prefix string) bool {
	return strings.HasPrefix(dir, prefix) || strings.HasPrefix(prefix, dir)
}

// checkKey is blob.CheckKey and keeps callers out of the staging folder.
func checkKey(key string) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	if key == "." || key == staging || strings.HasPrefix(key, staging+"/") {
		return fmt.Errorf("blob key %q: reserved", key)
	}
	return nil
}

// absent reports whether the error means that nothing exists under a name.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// notExist translates the file system's ways to say that a key is absent.
func notExist(op, key string, err error) error {
	if absent(err) {
		err = blob.ErrNotExist
	}
	return fmt.Errorf("%s %s: %w", op, key, err)
}

// contextReader stops a copy when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
