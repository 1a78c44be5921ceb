package remote

import (
	"context"
	"sync"
	"time"
)

const (
	// releaseTime bounds one message about sessions.
	releaseTime = 5 * time.Second
	// maxReleases bounds the sessions that wait to be released. An engine takes the
	// place of an idle session by itself when it needs it, so that one may be lost.
	maxReleases = 4096
)

// releases tells an engine in the background which sessions have ended, as many as
// there are in one message.
type releases struct {
	call *caller
	more chan struct{} // holds one
	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	sessions []string
}

func newReleases(call *caller) *releases {
	ctx, cancel := context.WithCancel(context.Background())
	r := &releases{call: call, more: make(chan struct{}, 1), stop: cancel}
	r.done.Go(func() { r.run(ctx) })
	return r
}

func (r *releases) add(session string) {
	r.mu.Lock()
	if len(r.sessions) < maxReleases {
		r.sessions = append(r.sessions, session)
	}
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default: // the goroutine will look
	}
}

func (r *releases) run(ctx context.Context) {
	for {
		select {
		case <-r.more:
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
		sessions := r.sessions
		r.sessions = nil
		r.mu.Unlock()
		timed, cancel := context.WithTimeout(ctx, releaseTime)
		// An engine that does not answer has nothing to release, or is found out by others.
		_ = r.call.post(timed, PathRelease, ReleaseRequest{Sessions: sessions}, nil)
		cancel()
	}
}

func (r *releases) close() {
	r.stop()
	r.done.Wait()
}
