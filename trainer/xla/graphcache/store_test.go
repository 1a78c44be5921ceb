package graphcache_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"temper/trainer/xla/graphcache"
)

func openStore(t *testing.T, limit int64) (*graphcache.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "graphs")
	s, err := graphcache.OpenStore(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func put(t *testing.T, s *graphcache.Store, k graphcache.Key, program []byte) {
	t.Helper()
	if err := s.Put(k, program); err != nil {
		t.Fatal(err)
	}
}

// only is the one file of a folder.
func only(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, error %v, want one file", len(files), err)
	}
	return filepath.Join(dir, files[0].Name())
}

func TestStoreKeepsPrograms(t *testing.T) {
	s, dir := openStore(t, 1<<20)
	if _, err := s.Get(graphcache.Key{1}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("error %v of an empty store", err)
	}
	put(t, s, graphcache.Key{1}, []byte("first"))
	put(t, s, graphcache.Key{1}, []byte("second"))
	got, err := s.Get(graphcache.Key{1})
	if err != nil || string(got) != "second" {
		t.Fatalf("%q, error %v", got, err)
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, only(t, dir): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, error %v, want %o", path, info.Mode(), err, want)
		}
	}
}

// TestStoreRefusesWhatItDidNotWrite: every byte of an entry counts, and so do its owner and
// its name. A program that is stored again is there again.
func TestStoreRefusesWhatItDidNotWrite(t *testing.T) {
	program := bytes.Repeat([]byte("code"), 64)
	for name, spoil := range map[string]func(t *testing.T, path string, whole []byte){
		"cut off":       func(t *testing.T, path string, whole []byte) { write(t, path, whole[:len(whole)-1]) },
		"nothing":       func(t *testing.T, path string, _ []byte) { write(t, path, nil) },
		"longer":        func(t *testing.T, path string, whole []byte) { write(t, path, append(whole, 0)) },
		"first byte":    func(t *testing.T, path string, whole []byte) { whole[0] ^= 1; write(t, path, whole) },
		"last byte":     func(t *testing.T, path string, whole []byte) { whole[len(whole)-1] ^= 1; write(t, path, whole) },
		"open to write": func(t *testing.T, path string, _ []byte) { must(t, os.Chmod(path, 0o666)) },
		"a link": func(t *testing.T, path string, _ []byte) {
			must(t, os.Rename(path, path+"-elsewhere"))
			must(t, os.Symlink(path+"-elsewhere", path))
		},
		"of another program": func(t *testing.T, path string, _ []byte) {
			other, dir := openStore(t, 1<<20)
			put(t, other, graphcache.Key{8}, program)
			must(t, os.Rename(only(t, dir), path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := openStore(t, 1<<20)
			put(t, s, graphcache.Key{7}, program)
			path := only(t, dir)
			whole, err := os.ReadFile(path)
			must(t, err)
			spoil(t, path, whole)
			if _, err := s.Get(graphcache.Key{7}); !errors.Is(err, graphcache.ErrRefused) {
				t.Fatalf("error %v, want %v", err, graphcache.ErrRefused)
			}
			put(t, s, graphcache.Key{7}, program)
			if got, err := s.Get(graphcache.Key{7}); err != nil || !bytes.Equal(got, program) {
				t.Errorf("%d bytes, error %v after it was stored again", len(got), err)
			}
		})
	}
}

// TestStoreIsBounded: what was used longest ago makes room, and so does what was never
// finished.
func TestStoreIsBounded(t *testing.T) {
	s, dir := openStore(t, 1000)
	long := time.Now().Add(-2 * time.Hour)
	for i := range byte(3) {
		put(t, s, graphcache.Key{i}, make([]byte, 200))
	}
	files, err := os.ReadDir(dir)
	must(t, err)
	for i, f := range files {
		must(t, os.Chtimes(filepath.Join(dir, f.Name()), long, long.Add(time.Duration(i)*time.Second)))
	}
	write(t, filepath.Join(dir, ".tmp-dead"), []byte("x"))
	must(t, os.Chtimes(filepath.Join(dir, ".tmp-dead"), long, long))
	if _, err := s.Get(graphcache.Key{0}); err != nil { // used now
		t.Fatal(err)
	}
	put(t, s, graphcache.Key{3}, make([]byte, 200))
	for i, want := range []bool{true, false, true, true} {
		if _, err := s.Get(graphcache.Key{byte(i)}); (err == nil) != want {
			t.Errorf("program %d: error %v, want it there: %v", i, err, want)
		}
	}
	put(t, s, graphcache.Key{4}, make([]byte, 2000)) // more than the store may hold
	if _, err := s.Get(graphcache.Key{4}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v of a program larger than the store", err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".tmp-dead")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want the unfinished file gone", err)
	}
}

func TestStoreRefusesFoldersOfOthers(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755)) //nolint:gosec // what is refused
	if _, err := graphcache.OpenStore(dir, 1); err == nil {
		t.Error("a folder that others may enter is taken")
	}
	write(t, filepath.Join(dir, "file"), nil)
	if _, err := graphcache.OpenStore(filepath.Join(dir, "file"), 1); err == nil {
		t.Error("a file is taken")
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	must(t, os.WriteFile(path, data, 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
