package chatclient

import (
	"context"
	"fmt"
	"time"
)

// SilenceError means that a server took a request and then brought nothing for so long.
type SilenceError struct{ For time.Duration }

// Error implements error.
func (e *SilenceError) Error() string {
	return fmt.Sprintf("the server says nothing new for %s", e.For)
}

// watching ends a request during which nothing new comes.
type watching struct {
	ctx     context.Context //nolint:containedctx // of the one request that it watches
	cancel  context.CancelCauseFunc
	silence time.Duration
	timer   *time.Timer // nil without a bound
}

// watch returns a context that ends when the Silence of a client has passed without news.
// The caller calls end.
func (c *Client) watch(parent context.Context) (context.Context, *watching) {
	w := &watching{silence: c.Silence}
	w.ctx, w.cancel = context.WithCancelCause(parent)
	if w.silence > 0 {
		w.timer = time.AfterFunc(w.silence, func() { w.cancel(&SilenceError{For: w.silence}) })
	}
	return w.ctx, w
}

func (w *watching) news() {
	if w.timer != nil {
		w.timer.Reset(w.silence)
	}
}

func (w *watching) end() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.cancel(nil)
}

// explain adds to an error that silence has ended the request, if it has.
func (w *watching) explain(err error) error {
	if silence, ok := context.Cause(w.ctx).(*SilenceError); ok && err != nil { //nolint:errorlint // as it was given to cancel
		return silence
	}
	return err
}
