package external

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/internal/inference"
)

// repair makes one attempt to bring a server back that was lost: it must hold the
// policy that is served, and prove it again. Requests that meet one lost server repair
// it once.
func (e *Engine) repair(ctx context.Context, s *seat) error {
	if err := e.changes.enter(ctx); err != nil {
		return err
	}
	defer e.changes.leave()
	e.mu.Lock()
	now := e.current
	e.mu.Unlock()
	switch {
	case !s.doubt.Load():
		return nil
	case now.version < 0:
		return fmt.Errorf("engine %s holds no policy: %w", e.cfg.Kind, inference.ErrStaleVersion)
	}
	p, err := e.publish(ctx, now) // the folder may have gone with the server
	if err != nil {
		return fmt.Errorf("engine %s: write policy %d: %w", e.cfg.Kind, now.version, err)
	}
	if err := e.install(ctx, s, now, p, 0); err != nil {
		return fmt.Errorf("engine %s: repair: %w", e.cfg.Kind, err)
	}
	e.cfg.Log.Info("engine server is back", "server", s.server.address(), "policy_version", now.version)
	return nil
}

// repairLater brings a server back beside the requests, which go to the others
// meanwhile. With one server, the requests themselves repair it.
func (e *Engine) repairLater(s *seat) {
	if len(e.seats) == 1 || !s.repairing.CompareAndSwap(false, true) {
		return
	}
	e.repairs.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { // ends with this repair
			select {
			case <-e.closing:
				cancel()
			case <-ctx.Done():
			}
		}()
		e.keepRepairing(ctx, s)
		s.repairing.Store(false)
		if ctx.Err() == nil && s.doubt.Load() && e.Version() >= 0 {
			e.repairLater(s) // it was lost again, or a policy loaded, before others could see that this repair has ended
		}
	})
}

// keepRepairing returns when a server is back, or there is no policy that it could hold.
func (e *Engine) keepRepairing(ctx context.Context, s *seat) {
	for pause := installPause; ; pause = min(2*pause, maxRepairPause) {
		err := e.repair(ctx, s)
		if err == nil || ctx.Err() != nil || errors.Is(err, inference.ErrStaleVersion) {
			return
		}
		e.cfg.Log.Warn("engine server is not back", "server", s.server.address(), "err", err)
		if sleep(ctx, pause) != nil {
			return
		}
	}
}

// maxRepairPause bounds the time between two attempts to bring a server back.
const maxRepairPause = 10 * time.Second
