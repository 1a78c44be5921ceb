package fileblob_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"temper/internal/blob"
)

// TestSizesAroundTheBlocks are put, read as a stream, in ranges and by reference.
func TestSizesAroundTheBlocks(t *testing.T) {
	s := open(t, t.TempDir())
	all := make([]byte, 33<<20+5)
	_, _ = rand.NewChaCha8([32]byte{}).Read(all) // never fails
	for _, size := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, 1<<20 + 64<<10, 1<<20 + 64<<10 + 1, 5<<20 + 7, len(all)} {
		data := all[:size]
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(data), "in halves": iotest.HalfReader(bytes.NewReader(data)), "with its end": iotest.DataErrReader(bytes.NewReader(data))} {
			ref, err := s.Put(t.Context(), "k", r, blob.Always)
			if err != nil || ref != blob.RefOf("k", data) {
				t.Fatalf("%d bytes %s: %+v, %v", size, name, ref, err)
			}
		}
		if got, err := blob.ReadRef(t.Context(), s, blob.RefOf("k", data)); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: %v", size, err)
		}
		got := make(buffer, size)
		if n, err := s.ReadInto(t.Context(), "k", got); err != nil || n != int64(size) || !bytes.Equal(got, data) {
			t.Errorf("%d bytes in ranges: %d, %v", size, n, err)
		}
	}
}

type buffer []byte

func (b buffer) WriteAt(p []byte, at int64) (int, error) { return copy(b[at:], p), nil }

// TestASourceThatFailsLeavesNothing, wherever it does.
func TestASourceThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	broken := errors.New("broken")
	for _, size := range []int64{0, 100, 64 << 10, 3 << 20} {
		r := io.MultiReader(io.LimitReader(zeros{}, size), iotest.ErrReader(broken))
		if _, err := s.Put(t.Context(), "k", r, blob.Always); !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v, want the source's error", size, err)
		}
	}
	left, err := os.ReadDir(filepath.Join(dir, ".staging"))
	if infos, listErr := s.List(t.Context(), ""); err != nil || listErr != nil || len(left)+len(infos) > 0 {
		t.Errorf("left: %v and %v (%v, %v)", left, infos, err, listErr)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
