package fileblob_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
)

// TestFoldersAreSyncedUpToADurableOne: a new folder, and one that was removed and made
// again, is synced with all above it that are new; one that is there is synced alone.
func TestFoldersAreSyncedUpToADurableOne(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	other := open(t, dir) // another process
	var synced []string
	var broken error
	s.OnSyncFolder(func(name string) error {
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			rel = name
		}
		synced = append(synced, rel)
		return broken
	})
	put := func(store blob.Store, key string) error {
		_, err := blob.PutBytes(t.Context(), store, key, []byte("x"), blob.Always)
		return err
	}
	remove := func(keys ...string) {
		for _, key := range keys {
			if err := other.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, row := range []struct {
		what   string
		before func()
		key    string
		want   []string
		fails  error
	}{
		{"a new folder whose sync fails", func() { broken = errors.New("disk") }, "a/b/k1", []string{"a/b"}, errors.New("disk")},
		{"the same again", func() { broken = nil }, "a/b/k1", []string{"a/b", "a", "."}, nil},
		{"a folder that is there", nil, "a/b/k2", []string{"a/b"}, nil},
		{"one beside it", nil, "a/c/k", []string{"a/c", "a"}, nil},
		{"the folder above", nil, "a/k", []string{"a"}, nil},
		{"a key of the root", nil, "k", []string{"."}, nil},
		{"removed and made again", func() { remove("a/b/k1", "a/b/k2") }, "a/b/k1", []string{"a/b", "a"}, nil},
		{"made again by somebody else", func() {
			remove("a/b/k1")
			if err := put(other, "a/b/k2"); err != nil {
				t.Fatal(err)
			}
		}, "a/b/k1", []string{"a/b", "a"}, nil},
		{"all removed", func() { remove("a/b/k1", "a/b/k2", "a/c/k", "a/k") }, "a/b/k1", []string{"a/b", "a", "."}, nil},
	} {
		if row.before != nil {
			row.before()
		}
		synced = nil
		if err := put(s, row.key); (err == nil) != (row.fails == nil) {
			t.Errorf("%s: error %v, want %v", row.what, err, row.fails)
		}
		if !slices.Equal(synced, row.want) {
			t.Errorf("%s: synced %q, want %q", row.what, synced, row.want)
		}
	}
}

// TestFewFoldersAreHeld, however many there are.
func TestFewFoldersAreHeld(t *testing.T) {
	s := open(t, t.TempDir())
	for i := range 3 * fileblob.MaxHeld {
		if _, err := blob.PutBytes(t.Context(), s, fmt.Sprintf("a/%d/k", i), nil, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.NumHeld(); n != fileblob.MaxHeld {
		t.Errorf("%d folders are held, want %d", n, fileblob.MaxHeld)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := s.NumHeld(); n != 0 {
		t.Errorf("%d folders are held after the end", n)
	}
}
