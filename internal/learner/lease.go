package learner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"temper/internal/blob"
	"temper/trainer/checkpoint"
)

// acquireLease takes the run's lease, for a new session and after another trainer had it.
func (s *session) acquireLease(ctx context.Context) (err error) {
	s.lease, err = checkpoint.Acquire(ctx, s.store, s.Layout.Head(), newHolder(), s.newestEpoch)
	return err
}

// newestEpoch is the highest epoch under which a checkpoint of the run was
// written: what is known of the lease without a head.
func (s *session) newestEpoch(ctx context.Context) (int64, error) {
	entries, err := checkpoint.List(ctx, s.store, s.Layout.Checkpoints())
	if err != nil {
		return 0, err
	}
	newest := int64(0)
	for _, e := range entries {
		d, err := checkpoint.Describe(ctx, s.store, e.Ref)
		if err == nil {
			newest = max(newest, d.Epoch)
		} else if !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, blob.ErrNotExist) {
			return 0, err
		}
	}
	return newest, nil
}

// newHolder names a holder of a lease as no other is named.
func newHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:12])
}
