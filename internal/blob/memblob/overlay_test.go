package memblob_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/blobtest"
	"temper/internal/blob/memblob"
)

// TestConformance over a base that is empty.
func TestOverlayConformance(t *testing.T) {
	blobtest.Run(t, func(*testing.T) blob.Store { return memblob.NewOverlay(memblob.New(), memblob.New()) })
}

// put stores a text.
func put(t *testing.T, s blob.Store, key, text string, cond blob.Condition) error {
	t.Helper()
	_, err := blob.PutBytes(t.Context(), s, key, []byte(text), cond)
	return err
}

// content is all that a store shows, by key.
func content(t *testing.T, s blob.Store) map[string]string {
	t.Helper()
	infos, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, info := range infos {
		data, err := blob.ReadKey(t.Context(), s, info.Key)
		if err != nil {
			t.Fatal(err)
		}
		out[info.Key] = string(data)
	}
	return out
}

// TestBaseIsNeverWritten by any kind of write, and the overlay shows them all.
func TestBaseIsNeverWritten(t *testing.T) {
	base := memblob.New()
	for _, key := range []string{"kept", "swapped", "over", "deleted", "step/1", "step/2"} {
		if err := put(t, base, key, "base "+key, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	before := content(t, base)
	s := memblob.NewOverlay(base, memblob.New())
	s.Hide("step/")
	if err := put(t, s, "kept", "new", blob.IfAbsent); !errors.Is(err, blob.ErrExists) {
		t.Errorf("a key of the base was put if absent: %v", err)
	}
	if _, err := s.Stat(t.Context(), "step/1"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("a hidden key is there: %v", err)
	}
	_, stale := s.Swap(t.Context(), "swapped", blob.RefOf("swapped", []byte("other")), nil)
	_, absent := s.Swap(t.Context(), "swapped", blob.Ref{}, nil)
	if !errors.Is(stale, blob.ErrConflict) || !errors.Is(absent, blob.ErrConflict) {
		t.Errorf("swaps of what the base does not hold: %v, %v", stale, absent)
	}
	once, err := s.Swap(t.Context(), "swapped", blob.RefOf("swapped", []byte("base swapped")), []byte("once"))
	if err == nil {
		_, err = s.Swap(t.Context(), "swapped", once, []byte("twice"))
	}
	err = errors.Join(err, put(t, s, "over", "new over", blob.Always), put(t, s, "step/1", "new step", blob.IfAbsent), s.Delete(t.Context(), "deleted"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"kept": "base kept", "swapped": "twice", "over": "new over", "step/1": "new step"}
	if diff := cmp.Diff(content(t, s), want); diff != "" {
		t.Errorf("the overlay: got -, want +\n%s", diff)
	}
	if diff := cmp.Diff(content(t, base), before); diff != "" {
		t.Errorf("the base changed: got -, want +\n%s", diff)
	}
	if _, folders, err := s.ListFolder(t.Context(), ""); err != nil || !cmp.Equal(folders, []string{"step"}) {
		t.Errorf("folders %v (%v)", folders, err)
	}
}
