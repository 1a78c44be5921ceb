// Package drain ends work that is under way: it lets it finish for a while, then
// cuts it short. It owns the order of these steps; what counts as work, and how new
// work is refused, belongs to its callers.
//
// Invariant: when Wait returns, no work is under way.
package drain

import (
	"context"
	"sync"
)

// Wait waits until all work is done or ctx ends, calls cut, which has to end the
// rest, and waits for that. No work may be added meanwhile. The error is ctx.Err()
// when ctx ended first.
func Wait(ctx context.Context, work *sync.WaitGroup, cut func()) error {
	done := make(chan struct{})
	go func() {
		work.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	cut()
	<-done
	return err
}
