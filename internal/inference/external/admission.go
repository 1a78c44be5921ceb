package external

import (
	"context"
	"fmt"
	"sync/atomic"

	"temper/internal/inference"
)

// requests numbers the requests of this process: servers know them by id.
var requests atomic.Int64

// begin waits until no policy is being loaded and counts a request in. leave counts
// it out.
func (e *Engine) begin(ctx context.Context, version int64) (now heldPolicy, leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		select {
		case <-e.resumed:
		default:
			resumed := e.resumed
			e.waiting++
			e.mu.Unlock()
			select {
			case <-resumed:
			case <-ctx.Done():
			}
			e.mu.Lock()
			e.waiting--
			if ctx.Err() != nil {
				return heldPolicy{}, nil, ctx.Err()
			}
			continue
		}
		break
	}
	if e.current.version < 0 || version >= 0 && version != e.current.version {
		return heldPolicy{}, nil, fmt.Errorf("engine %s holds version %d, want %d: %w", e.cfg.Kind, e.current.version, version, inference.ErrStaleVersion)
	}
	e.running++
	return e.current, e.leave, nil
}

func (e *Engine) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	if e.running == 0 && e.drained != nil {
		close(e.drained)
		e.drained = nil
	}
}

// drain lets no request start any more and waits for those that run.
func (e *Engine) drain(ctx context.Context) error {
	e.mu.Lock()
	e.resumed = make(chan struct{})
	var drained chan struct{}
	if e.running > 0 {
		drained = make(chan struct{})
		e.drained = drained
	}
	e.mu.Unlock()
	if drained == nil {
		return nil
	}
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// open lets requests start under the policy.
func (e *Engine) open(now heldPolicy) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current, e.drained = now, nil
	close(e.resumed)
}

// replicaFor returns the server of a request: the server of the trajectory so far, whose cache it
// can use, or the one with the fewest requests. An unproven server is the last choice.
func (e *Engine) replicaFor(c call) *replica {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[c.session]; c.session != "" && s != nil && !s.unproven.Load() {
		return s
	}
	best := e.replicas[0]
	for _, s := range e.replicas[1:] {
		better := s.running.Load() < best.running.Load()
		if s.unproven.Load() != best.unproven.Load() {
			better = best.unproven.Load()
		}
		if better {
			best = s
		}
	}
	if c.session != "" {
		e.sessions[c.session] = best
	}
	return best
}
