package external

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"temper/internal/inference"
)

// TestACutOfAServerThatStandsStill ends after a while, though the server answers neither the
// request nor the one that ends it.
func TestACutOfAServerThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(inference.ErrCut)
		still := func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Hour):
				return nil
			}
		}
		begin := time.Now()
		err := withAbort(ctx, func(ctx context.Context, _ string) error { return still(ctx) }, "id", still)
		if took := time.Since(begin); !errors.Is(err, context.Canceled) || took > 2*abortPatience {
			t.Errorf("error %v after %v, want the end of the context after %v", err, took, abortPatience)
		}
	})
}
