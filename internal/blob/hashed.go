package blob

import (
	"context"
	"fmt"
	"io"
)

// HashedPutter is what a Store offers where it need not hash what was hashed before.
type HashedPutter interface {
	// PutHashed is Put with Always of the bytes that want pins; the store takes over their
	// SHA-256 without computing it. It counts the bytes: another number is ErrCorrupt and
	// leaves the key as it was. A read with want finds a wrong hash, as ReadRef does.
	PutHashed(ctx context.Context, want Ref, r io.Reader) error
}

// PutHashed stores the bytes of r under the key of want. Only callers that made
// the hash from these very bytes may use it, and those who read must check it.
// Errors: ErrCorrupt when r has another length, or, from a store that hashes in
// any case, other bytes.
func PutHashed(ctx context.Context, s Store, want Ref, r io.Reader) error {
	if p, ok := s.(HashedPutter); ok {
		return p.PutHashed(ctx, want, r)
	}
	got, err := s.Put(ctx, want.Key, r, Always)
	if err == nil && got != want {
		err = mismatch(got, want)
	}
	return err
}

// CheckSize compares how many bytes a PutHashed got with how many it was to get.
func CheckSize(want Ref, got int64) error {
	if got == want.Size {
		return nil
	}
	return fmt.Errorf("%s: have %d bytes, want %d: %w", want.Key, got, want.Size, ErrCorrupt)
}
