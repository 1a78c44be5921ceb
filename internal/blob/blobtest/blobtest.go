// Package blobtest owns the conformance suite of blob.Store. Each driver runs
// it; what the suite does not ask for, callers must not rely on.
//
// Invariant: the suite knows the port only, never a driver.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
)

// Run proves that the stores which open returns keep the port's promises. Each
// call of open must give an empty store.
func Run(t *testing.T, open func(t *testing.T) blob.Store) {
	for name, test := range map[string]func(*testing.T, blob.Store){
		"Put and Get give the bytes back":              roundTrip,
		"an absent key is ErrNotExist":                 absent,
		"IfAbsent never overwrites":                    ifAbsent,
		"one of many concurrent IfAbsent writers wins": concurrentIfAbsent,
		"overwriting never shows a mixture":            overwrite,
		"a reader that breaks leaves nothing":          brokenReader,
		"a cancelled context leaves nothing":           cancelled,
		"bad keys are refused":                         badKeys,
		"List is sorted and exact":                     list,
		"ListFolder looks into one folder alone":       listFolder,
		"GetRange gives the bytes that there are":      getRange,
		"Delete is idempotent":                         deletes,
		"Swap replaces what the caller has seen":       swap,
		"one of many concurrent Swaps wins":            concurrentSwap,
		"no Swap is lost":                              countingSwap,
		"a hash that is given is never believed":       hashedPut,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func roundTrip(t *testing.T, s blob.Store) {
	ctx := t.Context()
	for _, data := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte("0123456789"), 100_000)} {
		key := fmt.Sprintf("a/b.c/%d", len(data))
		ref, err := blob.PutBytes(ctx, s, key, data, blob.Always)
		if err != nil {
			t.Fatal(err)
		}
		if want := blob.RefOf(key, data); ref != want {
			t.Errorf("Put returned %+v, want %+v", ref, want)
		}
		got, err := blob.ReadRef(ctx, s, ref)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("Get of %d bytes gave %d bytes, error %v", len(data), len(got), err)
		}
		info, err := s.Stat(ctx, key)
		if err != nil || info.Key != key || info.Size != int64(len(data)) || info.ModTime.IsZero() {
			t.Errorf("Stat gave %+v, error %v", info, err)
		}
	}
	if s.Locate("a/b") == s.Locate("a/c") || s.Locate("a/b") == "" {
		t.Errorf("Locate does not tell keys apart: %q", s.Locate("a/b"))
	}
}

func absent(t *testing.T, s blob.Store) {
	ctx := t.Context()
	put(t, s, "dir/file", "x")
	for _, key := range []string{"none", "dir", "dir/none", "none/none"} {
		if _, err := s.Get(ctx, key); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("Get(%q) gave %v, want ErrNotExist", key, err)
		}
		if _, err := s.Stat(ctx, key); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("Stat(%q) gave %v, want ErrNotExist", key, err)
		}
	}
}

func ifAbsent(t *testing.T, s blob.Store) {
	ctx := t.Context()
	if _, err := blob.PutBytes(ctx, s, "k", []byte("first"), blob.IfAbsent); err != nil {
		t.Fatal(err)
	}
	if _, err := blob.PutBytes(ctx, s, "k", []byte("second"), blob.IfAbsent); !errors.Is(err, blob.ErrExists) {
		t.Errorf("second IfAbsent gave %v, want ErrExists", err)
	}
	want(t, s, "k", "first")
	put(t, s, "k", "third")
	want(t, s, "k", "third")
}

func concurrentIfAbsent(t *testing.T, s blob.Store) {
	const writers = 16
	for round := range 8 {
		key := fmt.Sprintf("race/%d", round)
		errs := make([]error, writers)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				_, errs[w] = blob.PutBytes(t.Context(), s, key, payload(w), blob.IfAbsent)
			})
		}
		wg.Wait()
		winner := -1
		for w, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("writers %d and %d both won", winner, w)
			case err == nil:
				winner = w
			case !errors.Is(err, blob.ErrExists):
				t.Fatalf("writer %d: %v, want ErrExists", w, err)
			}
		}
		if winner < 0 {
			t.Fatal("nobody won")
		}
		want(t, s, key, string(payload(winner)))
	}
}

func overwrite(t *testing.T, s blob.Store) {
	ctx := t.Context()
	put(t, s, "k", string(payload(0)))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for range 10 {
				if _, err := blob.PutBytes(ctx, s, "k", payload(w), blob.Always); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 40 {
		got, err := blob.ReadKey(ctx, s, "k")
		if err != nil || len(got) == 0 || !bytes.Equal(got, payload(int(got[0]))) {
			t.Errorf("read %d mixed bytes, error %v", len(got), err)
			break
		}
	}
	wg.Wait()
}

func brokenReader(t *testing.T, s blob.Store) {
	ctx := t.Context()
	broken := errors.New("source broke")
	put(t, s, "old", "kept")
	for _, cond := range []blob.Condition{blob.Always, blob.IfAbsent} {
		r := io.MultiReader(bytes.NewReader(payload(1)), failingReader{broken})
		if _, err := s.Put(ctx, "new", r, cond); !errors.Is(err, broken) {
			t.Errorf("Put gave %v, want the reader's error", err)
		}
	}
	r := io.MultiReader(bytes.NewReader(payload(1)), failingReader{broken})
	if _, err := s.Put(ctx, "old", r, blob.Always); !errors.Is(err, broken) {
		t.Errorf("Put gave %v, want the reader's error", err)
	}
	want(t, s, "old", "kept")
	wantKeys(t, s, "", "old")
}

func cancelled(t *testing.T, s blob.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	r := io.MultiReader(bytes.NewReader(payload(1)), callReader(cancel), bytes.NewReader(payload(2)))
	if _, err := s.Put(ctx, "k", r, blob.Always); !errors.Is(err, context.Canceled) {
		t.Errorf("Put gave %v, want context.Canceled", err)
	}
	wantKeys(t, s, "")
}

func badKeys(t *testing.T, s blob.Store) {
	ctx := t.Context()
	for _, key := range []string{"", "/abs", "../up", "..", "a/../b", "a//b", "a/", "a\\b", "a\x00b", "a\nb"} {
		if _, err := blob.PutBytes(ctx, s, key, nil, blob.Always); err == nil {
			t.Errorf("Put(%q) was accepted", key)
		}
		if _, err := s.Get(ctx, key); err == nil || errors.Is(err, blob.ErrNotExist) {
			t.Errorf("Get(%q) gave %v, want a complaint about the key", key, err)
		}
		if _, err := s.Stat(ctx, key); err == nil || errors.Is(err, blob.ErrNotExist) {
			t.Errorf("Stat(%q) gave %v, want a complaint about the key", key, err)
		}
		if err := s.Delete(ctx, key); err == nil {
			t.Errorf("Delete(%q) was accepted", key)
		}
	}
}

func list(t *testing.T, s blob.Store) {
	// '-' and '.' sort before '/', so that a walk by folders gives the wrong order.
	for _, key := range []string{"b/x", "a-b", "a/b/c", "ab/c", "a.json"} {
		put(t, s, key, key)
	}
	wantKeys(t, s, "", "a-b", "a.json", "a/b/c", "ab/c", "b/x")
	wantKeys(t, s, "a", "a-b", "a.json", "a/b/c", "ab/c")
	wantKeys(t, s, "a/", "a/b/c")
	wantKeys(t, s, "a/b/c", "a/b/c")
	wantKeys(t, s, "a/b/c/")
	wantKeys(t, s, "none/")
	wantKeys(t, s, "zz")
	infos, err := s.List(t.Context(), "b/")
	if err != nil || len(infos) != 1 || infos[0].Size != 3 {
		t.Errorf("List gave %+v, error %v; want one blob of 3 bytes", infos, err)
	}
}

func deletes(t *testing.T, s blob.Store) {
	ctx := t.Context()
	put(t, s, "a/b", "x")
	put(t, s, "a/c", "y")
	for range 2 {
		if err := s.Delete(ctx, "a/b"); err != nil {
			t.Error(err)
		}
	}
	for _, key := range []string{"a", "none/none"} {
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("Delete(%q) of nothing: %v", key, err)
		}
	}
	wantKeys(t, s, "", "a/c")
	if _, err := blob.PutBytes(ctx, s, "a/b", []byte("z"), blob.IfAbsent); err != nil {
		t.Errorf("IfAbsent after Delete: %v", err)
	}
}

// payload returns the bytes that writer w writes: long enough for a torn write to show.
func payload(w int) []byte { return bytes.Repeat([]byte{byte(w)}, 200_000+w) }

func put(t *testing.T, s blob.Store, key, data string) {
	t.Helper()
	if _, err := blob.PutBytes(t.Context(), s, key, []byte(data), blob.Always); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, s blob.Store, key, data string) {
	t.Helper()
	got, err := blob.ReadKey(t.Context(), s, key)
	if err != nil || string(got) != data {
		t.Errorf("%s holds %d bytes (error %v), want %d bytes of one writer", key, len(got), err, len(data))
	}
}

func wantKeys(t *testing.T, s blob.Store, prefix string, keys ...string) {
	t.Helper()
	infos, err := s.List(t.Context(), prefix)
	if err != nil {
		t.Error(err)
		return
	}
	var got []string
	for _, info := range infos {
		got = append(got, info.Key)
	}
	if diff := cmp.Diff(keys, got); diff != "" {
		t.Errorf("List(%q), want (-) got (+):\n%s", prefix, diff)
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// callReader calls a function and is empty.
type callReader func()

func (c callReader) Read([]byte) (int, error) {
	c()
	return 0, io.EOF
}
