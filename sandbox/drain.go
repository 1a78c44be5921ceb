package sandbox

import (
	"context"
	"sync"
)

// Drain waits until all work is done or ctx ends, calls cut, which must end the rest, and
// waits for that. No work may be added meanwhile. The error is ctx.Err() when ctx ended
// first.
func Drain(ctx context.Context, work *sync.WaitGroup, cut func()) error {
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
