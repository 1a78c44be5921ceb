package external

import (
	"context"
	"errors"
	"fmt"
	"math"

	"temper/internal/inference"
)

// nan stands for a log-probability that a server left out.
var nan = float32(math.NaN())

// unknownRequests is how many requests of full length a server that states no capacity
// is taken to hold.
const unknownRequests = 16

// Status implements inference.Reporter. It sums up all servers that answer, and is an
// error when none does, or when one states a capacity with which nothing could run.
func (e *Engine) Status(ctx context.Context) (inference.Status, error) {
	e.mu.Lock()
	out := inference.Status{
		Version: e.current.version, MaxContext: e.cfg.MaxContext, Running: e.running, Waiting: e.waiting, Tokens: e.tokens.Load(),
	}
	e.mu.Unlock()
	var errs []error
	for _, s := range e.seats {
		l, err := s.server.status(ctx)
		if err == nil {
			l, err = l.checked(s, e.cfg.MaxContext)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.Capacity += l.capacity
		out.Used += l.used
	}
	err := errors.Join(errs...)
	if len(errs) == len(e.seats) || errors.Is(err, errRefused) {
		return inference.Status{}, fmt.Errorf("engine %s: status: %w", e.cfg.Kind, err)
	}
	return out, nil
}

// checked replaces what a server does not say and refuses what cannot be.
func (l load) checked(s *seat, maxContext int) (load, error) {
	if l.capacity < 0 {
		l.capacity = int64(maxContext) * unknownRequests
	}
	if l.capacity < int64(maxContext) {
		return l, fmt.Errorf("%s: its cache holds %d tokens, model.max_context is %d (%w)", s.server.address(), l.capacity, maxContext, errRefused)
	}
	l.used = min(max(l.used, 0), l.capacity)
	return l, nil
}
