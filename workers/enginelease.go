package workers

import (
	"context"
	"sync"
	"time"

	"temper/internal/inference/lease"
)

// engineLease keeps the entry of an engine in the registry.
type engineLease struct {
	server *engineServer
	entry  lease.Entry

	mu   sync.Mutex
	held *lease.Lease // nil before it was taken
}

// leaseTime bounds a change of the entry when the engine ends. A store that does not
// answer lets it expire.
const leaseTime = 3 * time.Second

// keep takes the name and renews the lease until ctx ends. An engine that lost its name
// ends: two of one name would be one for those who look.
func (l *engineLease) keep(ctx context.Context, draining <-chan struct{}, ready func()) error {
	held, err := lease.Hold(ctx, lease.Config{Store: l.server.store, Entry: l.entry})
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end was asked for
		}
		return err
	}
	l.mu.Lock()
	l.held = held
	l.mu.Unlock()
	ready()
	var announce sync.WaitGroup
	defer announce.Wait()
	announce.Go(func() {
		select {
		case <-draining:
			l.change(context.WithoutCancel(ctx), held.Drain)
		case <-ctx.Done():
		}
	})
	return held.Keep(ctx)
}

// leave gives the name back.
func (l *engineLease) leave(ctx context.Context) {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held != nil {
		l.change(ctx, held.Leave)
	}
}

func (l *engineLease) change(ctx context.Context, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	if err := do(ctx); err != nil {
		l.server.Log.Warn("entry of the engine is not changed", "engine", l.entry.Name, "err", err)
	}
}
