// Package pool keeps warm interpreters ready and gives each call a slot on one
// of them. It owns admission, the bounded queue, restarts, the repetition of
// calls that an interpreter took down with it, and the drain at the end; how a
// program is isolated belongs to package jail.
//
// Invariant: every call gets exactly one answer, a Result or an error, and a
// call that is refused was never started.
package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"temper/sandbox"
	"temper/sandbox/drain"
	"temper/sandbox/jail"
)

// Interpreter runs programs until it dies; *jail.Interpreter is one.
type Interpreter interface {
	// Run answers with jail.ErrDied when the interpreter ended first, and with
	// jail.ErrStarved when the program was not given the time to reach its limits.
	Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error)
	// Done is closed when the interpreter is gone.
	Done() <-chan struct{}
	// Close ends it and waits.
	Close()
}

// Start makes an interpreter that is ready.
type Start func(ctx context.Context) (Interpreter, error)

// FromJail adapts a jail to Start.
func FromJail(j *jail.Jail) Start {
	return func(ctx context.Context) (Interpreter, error) {
		z, err := j.Start(ctx)
		if err != nil {
			return nil, err
		}
		return z, nil
	}
}

// Config sizes a pool. Zero fields take the stated defaults.
type Config struct {
	Zygotes int // interpreters; the number of cores
	Slots   int // programs at once; 32 for each zygote, so that sleepers block nobody
	Queue   int // calls that may wait for a slot; 16 for each slot
	Logger  *slog.Logger
}

// Running is how many programs may run at a time.
func (c Config) Running() int { return c.withDefaults().Slots }

func (c Config) withDefaults() Config {
	if c.Zygotes <= 0 {
		c.Zygotes = runtime.NumCPU()
	}
	if c.Slots <= 0 {
		c.Slots = 32 * c.Zygotes
	}
	if c.Queue <= 0 {
		c.Queue = 16 * c.Slots
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Pool implements sandbox.Executor.
type Pool struct {
	cfg   Config
	start Start

	slots   chan struct{} // one token for each running program
	pace    pace          // of the slots that become free
	waiting atomic.Int64
	done    atomic.Int64
	deaths  atomic.Int64

	mu      sync.Mutex
	workers []*worker
	turn    int           // where Do looks first
	changed chan struct{} // closed and replaced when a worker comes up
	closing chan struct{}
	closed  bool
	calls   sync.WaitGroup

	stop   context.CancelFunc // ends the supervisors
	owners sync.WaitGroup

	quarantine chan struct{} // one suspected call at a time runs on an interpreter of its own
}

var _ sandbox.Executor = (*Pool)(nil)

// worker is the place of one interpreter; guarded by Pool.mu.
type worker struct {
	interpreter Interpreter // nil while it is down
	inFlight    int
}

// alive is also false for an interpreter that has died but that keep has not replaced
// yet, so that a call does not meet the same death twice.
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

// New starts the interpreters and returns when all are ready.
func New(ctx context.Context, cfg Config, start Start) (*Pool, error) {
	cfg = cfg.withDefaults()
	p := &Pool{
		cfg: cfg, start: start,
		slots:   make(chan struct{}, cfg.Slots),
		changed: make(chan struct{}), closing: make(chan struct{}),
		quarantine: make(chan struct{}, 1),
	}
	first := make([]Interpreter, cfg.Zygotes)
	errs := make([]error, cfg.Zygotes)
	var starting sync.WaitGroup
	for i := range first {
		starting.Go(func() { first[i], errs[i] = start(ctx) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, in := range first {
			if in != nil {
				in.Close()
			}
		}
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	for _, in := range first {
		w := &worker{interpreter: in}
		p.workers = append(p.workers, w)
		p.owners.Go(func() { p.keep(life, w, in) })
	}
	return p, nil
}

// Execute implements sandbox.Executor.
func (p *Pool) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if !p.enter() {
		return sandbox.Result{}, fmt.Errorf("%w: shutting down", sandbox.ErrUnavailable)
	}
	defer p.calls.Done()
	arrived := time.Now()
	if err := p.admit(ctx); err != nil {
		return sandbox.Result{}, err
	}
	defer p.free()
	queued := time.Since(arrived)
	res, err := p.run(ctx, req)
	if err != nil {
		return sandbox.Result{}, err
	}
	res.Usage.Queue = queued
	p.done.Add(1)
	return res, nil
}

// enter counts a call in unless the pool is closing.
func (p *Pool) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.calls.Add(1)
	return true
}

// admit takes a slot, waiting in the bounded queue when there is none.
func (p *Pool) admit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	default:
	}
	defer p.waiting.Add(-1)
	if p.waiting.Add(1) > int64(p.cfg.Queue) {
		return &sandbox.Overloaded{
			Detail:     fmt.Sprintf("%d programs run and %d wait", p.cfg.Slots, p.cfg.Queue),
			RetryAfter: p.pace.advice(time.Now(), p.cfg.Queue),
		}
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// free gives a slot back.
func (p *Pool) free() {
	p.pace.add(time.Now())
	<-p.slots
}

// suspicious is the number of interpreters that a call may see die before it is
// run alone, where only it can be to blame.
const suspicious = 2

// run executes req on an interpreter, again when that one dies under it.
func (p *Pool) run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	for range suspicious {
		w, in, err := p.pick(ctx)
		if err != nil {
			return sandbox.Result{}, err
		}
		res, err := in.Run(ctx, req)
		p.release(w)
		if err == nil {
			return res, nil
		}
		if err := p.final(ctx, err); err != nil {
			return sandbox.Result{}, err
		}
	}
	return p.alone(ctx, req)
}

// final turns an error of Run into the answer of the call, or nil when the call
// is to be repeated.
func (p *Pool) final(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case p.isClosing():
		return fmt.Errorf("%w: shutting down", sandbox.ErrUnavailable)
	case errors.Is(err, jail.ErrDied):
		return nil
	case errors.Is(err, sandbox.ErrOverloaded):
		return err
	default:
		return fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
	}
}

// alone runs a call during which two interpreters died on an interpreter of its own. A
// call that ends that one too is answered as killed.
func (p *Pool) alone(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	select {
	case p.quarantine <- struct{}{}:
		defer func() { <-p.quarantine }()
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
	in, err := p.start(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return sandbox.Result{}, ctx.Err()
		}
		return sandbox.Result{}, fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
	}
	defer in.Close()
	res, err := in.Run(ctx, req)
	if err == nil {
		return res, nil
	}
	if err := p.final(ctx, err); err != nil {
		return sandbox.Result{}, err
	}
	return sandbox.Result{
		ID: req.ID, Status: sandbox.StatusKilled, ExitCode: 137,
		Reason: "ends the interpreter that runs it, again and again",
	}, nil
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

// Back-off between restarts of an interpreter; one that lived for healthy starts anew.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 5 * time.Second
	healthy      = 10 * time.Second
)

// keep replaces the interpreter of w whenever it dies, until life ends.
func (p *Pool) keep(life context.Context, w *worker, in Interpreter) {
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

func (p *Pool) isClosing() bool {
	select {
	case <-p.closing:
		return true
	default:
		return false
	}
}

// Close refuses new calls, lets those inside finish until ctx ends, kills the
// rest, and returns when every interpreter is gone. The error is ctx.Err() when
// calls had to be killed.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	already := p.closed
	p.closed = true
	p.mu.Unlock()
	err := drain.Wait(ctx, &p.calls, func() {
		if !already {
			close(p.closing)
			p.stop()
		}
	})
	p.owners.Wait()
	return err
}

// Stats is a snapshot of a pool.
type Stats struct {
	Zygotes  int   `json:"zygotes"` // alive
	Slots    int   `json:"slots"`
	Busy     int   `json:"busy"`
	Queue    int   `json:"queue"` // room for waiting calls
	Waiting  int   `json:"waiting"`
	Executed int64 `json:"executed"`
	Deaths   int64 `json:"deaths"` // interpreters that died
}

// Stats returns a snapshot.
func (p *Pool) Stats() Stats {
	s := Stats{
		Slots: p.cfg.Slots, Busy: len(p.slots), Queue: p.cfg.Queue,
		Waiting: int(p.waiting.Load()), Executed: p.done.Load(), Deaths: p.deaths.Load(),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		if w.alive() {
			s.Zygotes++
		}
	}
	return s
}
