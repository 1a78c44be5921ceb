package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
)

// probeFolder is where Probe works.
const probeFolder = "probe/"

// Probe tries every operation that this service needs of a store, on a new key, so that a
// missing bucket, refused credentials, a full disk or a server that ignores conditions is
// known before work depends on it. Probe deletes the key afterwards. Errors: the errors of
// the store; ErrMisconfigured when it breaks a promise.
func Probe(ctx context.Context, s Store) (err error) {
	key := probeFolder + rand.Text()
	first, err := PutBytes(ctx, s, key, []byte("first"), IfAbsent)
	if err != nil {
		return err
	}
	defer func() {
		if deleteErr := s.Delete(ctx, key); err == nil {
			err = deleteErr
		}
	}()
	if _, err := PutBytes(ctx, s, key, []byte("other"), IfAbsent); !errors.Is(err, ErrExists) {
		return broken(s, "conditional writes (If-None-Match)", err)
	}
	second, err := s.Swap(ctx, key, first, []byte("second"))
	if err != nil {
		return err
	}
	if _, err := s.Swap(ctx, key, first, []byte("third")); !errors.Is(err, ErrConflict) {
		return broken(s, "conditional writes (If-Match)", err)
	}
	if _, err := ReadRef(ctx, s, second); err != nil {
		return err
	}
	infos, err := s.List(ctx, key)
	if err == nil && len(infos) != 1 {
		return broken(s, "listings that show what was written", nil)
	}
	return err
}

// broken is the error of a store that lacks something, unless it has another error.
func broken(s Store, what string, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s lacks %s: use another server: %w", s.Locate(""), what, ErrMisconfigured)
}
