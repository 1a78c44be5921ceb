package learner

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"

	"temper/trainer/checkpoint"
)

// acquireLease takes the run's lease, for a new session and after another trainer had it.
// After an error the session has the lease that it had.
func (s *session) acquireLease(ctx context.Context) error {
	lease, err := checkpoint.Acquire(ctx, s.store, s.Layout.Head(), newHolder(), func(ctx context.Context) (int64, error) {
		return newestEpoch(ctx, s.store, s.Layout)
	})
	if err != nil {
		return err
	}
	s.lease = lease
	if s.onLease != nil {
		s.onLease(s.Ref.RunID, lease.Epoch())
	}
	return nil
}

// newHolder names a holder of a lease as no other is named.
func newHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:12])
}
