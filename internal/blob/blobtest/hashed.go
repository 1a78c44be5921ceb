package blobtest

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"temper/internal/blob"
)

// hashedPut: a store that takes over a hash without computing it refuses bytes of another
// length; the Put or the next read refuses other bytes of the same length.
func hashedPut(t *testing.T, s blob.Store) {
	ctx := t.Context()
	data := bytes.Repeat([]byte("0123456789"), 600_000) // more than the smallest part of an S3 upload
	for name, source := range map[string]io.Reader{
		"its own memory": bytes.NewReader(data), "a stream": struct{ io.Reader }{bytes.NewReader(data)},
	} {
		ref := blob.RefOf("hashed/whole", data)
		if err := blob.PutHashed(ctx, s, ref, source); err != nil {
			t.Fatalf("from %s: %v", name, err)
		}
		if got, err := blob.ReadRef(ctx, s, ref); err != nil || !bytes.Equal(got, data) {
			t.Errorf("from %s: %d bytes came back, error %v", name, len(got), err)
		}
	}

	for name, wrong := range map[string][]byte{"short": data[1:], "long": append(bytes.Clone(data), 0), "empty": {}} {
		before := blob.RefOf("hashed/"+name, []byte("before"))
		put(t, s, before.Key, "before")
		if err := blob.PutHashed(ctx, s, blob.RefOf(before.Key, data), bytes.NewReader(wrong)); !errors.Is(err, blob.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
		if _, trusts := s.(blob.HashedPutter); !trusts {
			continue
		}
		if _, err := blob.ReadRef(ctx, s, before); err != nil {
			t.Errorf("%s: what the key held is gone: %v", name, err)
		}
	}

	other := bytes.Clone(data)
	other[len(other)/2] ^= 1
	want := blob.RefOf("hashed/other", data)
	err := blob.PutHashed(ctx, s, want, bytes.NewReader(other))
	if err == nil {
		_, err = blob.ReadRef(ctx, s, want)
	}
	if !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("other bytes under a hash: got %v, want ErrCorrupt from the put or from the read", err)
	}
}
