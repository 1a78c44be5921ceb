package fileblob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"temper/internal/blob"
)

// Swap implements blob.Store. The comparison and the rename happen under an
// advisory lock that all processes of the store share; the kernel drops it when
// its holder dies, and the rename alone decides what a crash leaves.
func (s *Store) Swap(ctx context.Context, key string, old blob.Ref, data []byte) (blob.Ref, error) {
	if err := errors.Join(ctx.Err(), checkKey(key), blob.CheckSwap(key, old)); err != nil {
		return blob.Ref{}, err
	}
	temp, err := s.stage(func(f *os.File) error {
		_, _, err := copyHashed(ctx, f, bytes.NewReader(data))
		return err
	})
	if err != nil {
		return blob.Ref{}, fmt.Errorf("swap %s: %w", key, s.explain(err))
	}
	// After a rename the name is gone already; a leftover is swept by a later New.
	defer s.root.Remove(temp) //nolint:errcheck // see above
	unlock, err := s.lock(ctx)
	if err != nil {
		return blob.Ref{}, fmt.Errorf("swap %s: %w", key, s.explain(err))
	}
	defer unlock()
	if err := s.replace(ctx, temp, key, old); err != nil {
		return blob.Ref{}, fmt.Errorf("swap %s: %w", key, s.explain(err))
	}
	return blob.RefOf(key, data), nil
}

// replace installs the staged file when the key holds old. The caller holds the lock.
func (s *Store) replace(ctx context.Context, temp, key string, old blob.Ref) error {
	if old.IsZero() { // the link also excludes a Put with IfAbsent, which takes no lock
		err := s.install(temp, key, blob.IfAbsent)
		if errors.Is(err, blob.ErrExists) {
			return blob.ErrConflict
		}
		return err
	}
	have, err := blob.ReadKey(ctx, s, key)
	if errors.Is(err, blob.ErrNotExist) {
		return blob.ErrConflict
	}
	if err != nil {
		return err
	}
	if blob.RefOf(key, have) != old {
		return blob.ErrConflict
	}
	return s.install(temp, key, blob.Always)
}

// lock takes the store's lock and returns what gives it up. It asks again and
// again instead of sleeping in the kernel, so that a stopped holder cannot keep
// a caller beyond its context.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	// Each call opens the folder anew: locks belong to an open file, so that they
	// exclude the other goroutines of this process too.
	f, err := os.Open(filepath.Join(s.dir, staging))
	if err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 16*time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close() // opened for reading only
			return nil, fmt.Errorf("lock the store: %w", err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close() // opened for reading only
			return nil, fmt.Errorf("wait for the store's lock: %w", ctx.Err())
		case <-time.After(wait):
		}
	}
}
