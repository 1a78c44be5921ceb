package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"
)

const (
	// heartbeatInterval is well below the heartbeat time-outs of the workflows.
	heartbeatInterval = 2 * time.Second
	// stallTimeout is longer than any single update, checkpoint or group takes.
	stallTimeout = time.Hour
)

var errStalled = errors.New("no progress for " + stallTimeout.String())

// heartbeat tells the server that the activity lives until the returned
// function is called. Each beat carries progress, for people who look. An activity
// that makes no progress is cancelled, and the beats end.
func heartbeat(ctx context.Context, progress func() string) (context.Context, func()) {
	if !activity.IsActivity(ctx) {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if !beatUntil(done, progress, func(text string) { activity.RecordHeartbeat(ctx, text) }) {
			cancel(errStalled)
		}
	}()
	return ctx, func() { close(done); <-ended; cancel(nil) }
}

// keepAlive is heartbeat for control work, which is bounded by its own time-out and
// says nothing of its progress. A local activity needs none: its workflow task is
// its heartbeat.
func keepAlive(ctx context.Context) (stop func()) {
	if activity.IsActivity(ctx) && activity.GetInfo(ctx).IsLocalActivity {
		return func() {}
	}
	_, stop = heartbeat(ctx, func() string { return "" })
	return stop
}

// beatUntil beats until done and returns true. It returns false when progress has not
// changed for too long.
func beatUntil(done <-chan struct{}, progress func() string, beat func(string)) bool {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	last, still := progress(), time.Duration(0)
	for {
		select {
		case <-done:
			return true
		case <-tick.C:
		}
		now := progress()
		if still += heartbeatInterval; now != last {
			last, still = now, 0
		}
		if still >= stallTimeout {
			return false
		}
		beat(now)
	}
}
