package blobtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"temper/internal/blob"
)

// RunLarge proves the promises for blobs of size bytes, which should be several
// parts of a driver that cuts blobs into parts. It belongs behind the tag of
// integration tests.
func RunLarge(t *testing.T, size int, open func(t *testing.T) blob.Store) {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	for name, test := range map[string]func(*testing.T, blob.Store, []byte){
		"a large blob comes back":               largeRoundTrip,
		"a large blob never overwrites":         largeIfAbsent,
		"a large blob that breaks is not there": largeBroken,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t), data) })
	}
}

func largeRoundTrip(t *testing.T, s blob.Store, data []byte) {
	for _, size := range []int{len(data), len(data) / 2, len(data) - 1} {
		ref, err := s.Put(t.Context(), "large", onlyReader{bytes.NewReader(data[:size])}, blob.Always)
		if err != nil {
			t.Fatal(err)
		}
		if want := blob.RefOf("large", data[:size]); ref != want {
			t.Errorf("Put returned %+v, want %+v", ref, want)
		}
		if _, err := blob.ReadRef(t.Context(), s, ref); err != nil {
			t.Error(err)
		}
		w := buffer(make([]byte, size))
		n, err := readInto(t.Context(), s, "large", w)
		if err != nil || n != int64(size) || !bytes.Equal(w, data[:size]) {
			t.Errorf("ReadInto gave %d bytes, error %v, equal %t", n, err, bytes.Equal(w, data[:size]))
		}
	}
	if _, err := readInto(t.Context(), s, "none", buffer(nil)); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("ReadInto of nothing gave %v, want ErrNotExist", err)
	}
}

// readInto writes the bytes under key to w, in parallel where the store can.
func readInto(ctx context.Context, s blob.Store, key string, w io.WriterAt) (size int64, err error) {
	if p, ok := s.(blob.ParallelReader); ok {
		return p.ReadInto(ctx, key, w)
	}
	rc, err := s.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through this handle
	return io.Copy(io.NewOffsetWriter(w, 0), rc)
}

func largeIfAbsent(t *testing.T, s blob.Store, data []byte) {
	const writers = 3
	errs := make(chan error, writers)
	for w := range writers {
		go func() {
			mine := bytes.Clone(data)
			mine[0] = byte(w)
			_, err := s.Put(t.Context(), "k", bytes.NewReader(mine), blob.IfAbsent)
			errs <- err
		}()
	}
	won := 0
	for range writers {
		err := <-errs
		if err == nil {
			won++
		} else if !errors.Is(err, blob.ErrExists) {
			t.Errorf("got %v, want ErrExists", err)
		}
	}
	got, err := blob.ReadKey(t.Context(), s, "k")
	if err != nil || won != 1 || len(got) != len(data) || !bytes.Equal(got[1:], data[1:]) {
		t.Errorf("%d writers won and %d bytes are there (error %v), want one winner", won, len(got), err)
	}
}

func largeBroken(t *testing.T, s blob.Store, data []byte) {
	broken := errors.New("source broke")
	_, err := s.Put(t.Context(), "k", io.MultiReader(bytes.NewReader(data), failingReader{broken}), blob.Always)
	if !errors.Is(err, broken) {
		t.Errorf("Put gave %v, want the reader's error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := io.MultiReader(bytes.NewReader(data), callReader(cancel), bytes.NewReader(data))
	if _, err := s.Put(ctx, "k", r, blob.Always); !errors.Is(err, context.Canceled) {
		t.Errorf("Put gave %v, want context.Canceled", err)
	}
	wantKeys(t, s, "")
}

// onlyReader hides what else a reader can do.
type onlyReader struct{ io.Reader }

// buffer is an io.WriterAt of a fixed length.
type buffer []byte

func (b buffer) WriteAt(p []byte, at int64) (int, error) { return copy(b[at:], p), nil }
