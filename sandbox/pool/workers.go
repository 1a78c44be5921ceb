package pool

import (
	"context"
	"fmt"
	"time"

	"temper/sandbox"
)

// worker holds one ordinary interpreter; guarded by Pool.mu.
type worker struct {
	interpreter Interpreter // nil while it is down
	inFlight    int
}

// alive reports whether the interpreter lives. It is false as soon as the interpreter dies,
// even before maintain replaces it, so that a call does not see the same death twice.
func (w *worker) alive() bool {
	if w.interpreter == nil {
		return false
	}
	select {
	case <-w.interpreter.Done():
		return false
	default:
		return true
	}
}

// patience is how long a call waits for an interpreter to come back.
const patience = 30 * time.Second

// pick returns the least busy living interpreter.
func (p *Pool) pick(ctx context.Context) (*worker, Interpreter, error) {
	giveUp := time.NewTimer(patience)
	defer giveUp.Stop()
	for {
		p.mu.Lock()
		var best *worker
		for _, w := range p.workers {
			if w.alive() && (best == nil || w.inFlight < best.inFlight) {
				best = w
			}
		}
		if best != nil {
			best.inFlight++
			in := best.interpreter
			p.mu.Unlock()
			return best, in, nil
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-p.closing:
			return nil, nil, fmt.Errorf("%w: shutting down", sandbox.ErrUnavailable)
		case <-giveUp.C:
			return nil, nil, fmt.Errorf("%w: no interpreter came up within %v", sandbox.ErrUnavailable, patience)
		}
	}
}

func (p *Pool) release(w *worker) {
	p.mu.Lock()
	w.inFlight--
	p.mu.Unlock()
}

// Back-off between restarts of an interpreter; it resets when one has lived for healthy.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 5 * time.Second
	healthy      = 10 * time.Second
)

// maintain replaces the interpreter of w whenever it dies, until life ends.
func (p *Pool) maintain(life context.Context, w *worker, in Interpreter) {
	backoff := firstBackoff
	for {
		born := time.Now()
		select {
		case <-in.Done():
		case <-life.Done():
			p.set(w, nil)
			in.Close()
			return
		}
		p.set(w, nil)
		p.owners.Go(in.Close) // it may hold other processes that still live
		p.deaths.Add(1)
		if time.Since(born) > healthy {
			backoff = firstBackoff
		}
		p.cfg.Logger.Warn("sandbox interpreter died", "restart_in", backoff)
		for in = nil; in == nil; {
			select {
			case <-life.Done():
				return
			case <-time.After(backoff):
			}
			backoff = min(2*backoff, lastBackoff)
			fresh, err := p.start(life)
			if err != nil && life.Err() == nil {
				p.cfg.Logger.Error("sandbox interpreter does not start", "err", err)
			}
			in = fresh
		}
		p.set(w, in)
	}
}

func (p *Pool) set(w *worker, in Interpreter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.interpreter = in
	if in != nil {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}
