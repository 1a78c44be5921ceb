package sandbox

import (
	"context"
	"sync"
)

// Drain waits until all work is done. If ctx ends first, it calls cut, which must end the
// remaining work, and waits for that. No work may be added meanwhile. It returns ctx.Err()
// if ctx ended first.
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
