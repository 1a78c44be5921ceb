package blob

import (
	"context"
	"errors"
	"fmt"
)

// RefError ties a failure to the Ref that was read: its bytes are gone or not those
// that it pins.
type RefError struct {
	Ref Ref
	Err error
}

// Error implements error.
func (e *RefError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *RefError) Unwrap() error { return e.Err }

// AtRef says of which Ref an error is, where the error is damage and does not say so
// itself.
func AtRef(err error, ref Ref) error {
	if _, known := DamagedRef(err); known || !IsDamage(err) {
		return err
	}
	return &RefError{Ref: ref, Err: err}
}

// DamagedRef is the Ref of what is damaged or gone; ok is false for other errors.
func DamagedRef(err error) (ref Ref, ok bool) {
	var e *RefError
	if !errors.As(err, &e) {
		return Ref{}, false
	}
	return e.Ref, true
}

// IsDamage tells stored bytes that are wrong or gone from a store that fails.
func IsDamage(err error) bool { return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotExist) }

// maxSwapped bounds the blobs that Restore replaces by comparing; weights are larger.
const maxSwapped = 1 << 20

// Restore stores data under a key that is missing or holds something else. Errors:
// ErrConflict when another process has changed the key meanwhile.
func Restore(ctx context.Context, s Store, key string, data []byte) error {
	want := RefOf(key, data)
	there, err := ReadKey(ctx, s, key)
	switch {
	case errors.Is(err, ErrNotExist):
		_, err = PutBytes(ctx, s, key, data, IfAbsent)
	case errors.Is(err, ErrCorrupt): // for the store itself
		_, err = PutBytes(ctx, s, key, data, Always)
	case err != nil:
		return err
	case RefOf(key, there) == want:
		return nil
	case max(len(there), len(data)) <= maxSwapped:
		_, err = s.Swap(ctx, key, RefOf(key, there), data)
	default:
		_, err = PutBytes(ctx, s, key, data, Always)
	}
	if errors.Is(err, ErrExists) || errors.Is(err, ErrConflict) {
		return fmt.Errorf("%s was changed by somebody else while it was restored: repeat it: %w", key, ErrConflict)
	}
	return err
}
