package fileblob_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
)

// tiny mounts a file system of one MiB, for which one has to be root.
func tiny(t *testing.T, flags uintptr) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, "size=1m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestAFullDiskIsToldAndPasses(t *testing.T) {
	s := open(t, tiny(t, 0))
	kept, err := blob.PutBytes(t.Context(), s, "kept", []byte("x"), blob.Always)
	if err != nil {
		t.Fatal(err)
	}
	big := bytes.Repeat([]byte{1}, 2<<20)
	for _, key := range []string{"big", "kept"} {
		_, err := blob.PutBytes(t.Context(), s, key, big, blob.Always)
		if !errors.Is(err, blob.ErrUnavailable) || !strings.Contains(err.Error(), "free some space") || strings.Contains(err.Error(), "\n") {
			t.Errorf("Put gave %v, want one line about the full disk", err)
		}
	}
	if _, err := s.Swap(t.Context(), "kept", kept, big); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("Swap gave %v, want ErrUnavailable", err)
	}
	if infos, err := s.List(t.Context(), ""); err != nil || len(infos) != 1 {
		t.Errorf("the store holds %v (error %v), want what it held before", infos, err)
	}
	if _, err := blob.ReadRef(t.Context(), s, kept); err != nil {
		t.Errorf("what was there is lost: %v", err)
	}
	if _, err := blob.PutBytes(t.Context(), s, "small", []byte("x"), blob.Always); err != nil {
		t.Errorf("a full disk that has space again: %v", err)
	}
}

func TestAReadOnlyFolderIsTold(t *testing.T) {
	_, err := fileblob.New(filepath.Join(tiny(t, syscall.MS_RDONLY), "store"))
	if !errors.Is(err, blob.ErrMisconfigured) || !strings.Contains(err.Error(), "writable") {
		t.Errorf("New gave %v, want a hint at the permission", err)
	}
}

func TestAFolderThatBecomesReadOnlyIsTold(t *testing.T) {
	dir := tiny(t, 0)
	s := open(t, dir)
	if err := blob.Probe(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Skip(err)
	}
	if err := blob.Probe(t.Context(), s); !errors.Is(err, blob.ErrMisconfigured) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Probe gave %v, want ErrMisconfigured in one line", err)
	}
}

func TestAPlaceThatIsAFileIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fileblob.New(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("New gave %v, want the file's name in it", err)
	}
}
