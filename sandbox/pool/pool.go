// Package pool keeps warm interpreters ready and gives each call a slot on one
// of them. It owns admission, the bounded queue, restarts, the repetition of
// calls whose interpreter died, and the drain at the end; how a
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
	"temper/sandbox/jail"
)

// Interpreter runs programs until it dies; *jail.Interpreter implements it.
type Interpreter interface {
	// Run returns jail.ErrDied when the interpreter ended first, and
	// jail.ErrStarved when the program did not get the time to reach its limits.
	Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error)
	// Done is closed when the interpreter is gone.
	Done() <-chan struct{}
	// Close ends it and waits.
	Close()
}

// Start makes a ready interpreter.
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
	Zygotes   int // interpreters; one for each core
	Slots     int // programs at once; 32 for each zygote, so that sleeping ones do not block others
	Computing int // programs at once that want a core; 6 for each core
	Queue     int // calls that may wait for a slot; 16 for each slot
	Logger    *slog.Logger
}

// perCore is how many programs may want each core. While one is forked or reports, another
// can compute, and a long program does not block short ones; but each of them has to get
// enough time within its limits.
const perCore = 6

// Running returns how many programs may run at a time.
func (c Config) Running() int { return c.withDefaults().Slots }

func (c Config) withDefaults() Config {
	if c.Zygotes <= 0 {
		c.Zygotes = runtime.NumCPU()
	}
	if c.Slots <= 0 {
		c.Slots = 32 * c.Zygotes
	}
	if c.Computing <= 0 {
		c.Computing = perCore * runtime.GOMAXPROCS(0)
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

	places  places
	pace    pace // of slots that become free
	done    atomic.Int64
	deaths  atomic.Int64
	starved atomic.Int64

	mu      sync.Mutex
	workers []*worker
	turn    int           // where spread starts to search
	changed chan struct{} // closed and replaced when an interpreter comes up
	closing chan struct{}
	closed  bool
	calls   sync.WaitGroup

	life       context.Context    // life of the interpreters
	stop       context.CancelFunc // ends life
	owners     sync.WaitGroup
	quarantine quarantine
}

var _ sandbox.Executor = (*Pool)(nil)

// New starts the interpreters and returns when all are ready.
func New(ctx context.Context, cfg Config, start Start) (*Pool, error) {
	cfg = cfg.withDefaults()
	p := &Pool{
		cfg: cfg, start: start,
		places:  places{slots: cfg.Slots, most: cfg.Computing, cores: max(1, cfg.Computing/perCore), room: cfg.Queue},
		changed: make(chan struct{}), closing: make(chan struct{}),
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
	p.life, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.quarantine = quarantine{life: p.life, start: start, room: quarantineRatio * cfg.Zygotes, freed: make(chan struct{})}
	for _, in := range first {
		w := &worker{interpreter: in}
		p.workers = append(p.workers, w)
		p.owners.Go(func() { p.maintain(p.life, w, in) })
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
	pl, err := p.admit(ctx)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer p.free(pl)
	queued := time.Since(arrived)
	res, err := p.run(jail.OnDemand(ctx, pl.observe), req, pl)
	if err != nil {
		return sandbox.Result{}, err
	}
	res.Usage.Queue = queued
	p.done.Add(1)
	return res, nil
}

// admit takes a place for a call.
func (p *Pool) admit(ctx context.Context) (*place, error) {
	return p.places.admit(ctx, func() time.Duration { return p.pace.retryAfter(time.Now(), p.cfg.Queue) })
}

func (p *Pool) free(pl *place) {
	p.pace.add(time.Now())
	pl.free()
}

// enter counts a call unless the pool is closing.
func (p *Pool) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.calls.Add(1)
	return true
}

func (p *Pool) isClosing() bool {
	select {
	case <-p.closing:
		return true
	default:
		return false
	}
}

// Close refuses new calls, waits for the calls inside until ctx ends, kills the remaining
// ones, and returns when every interpreter has ended. It returns ctx.Err() if it had to
// kill calls.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	already := p.closed
	p.closed = true
	p.mu.Unlock()
	err := sandbox.Drain(ctx, &p.calls, func() {
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
	Queue    int   `json:"queue"` // largest number of waiting calls
	Waiting  int   `json:"waiting"`
	Executed int64 `json:"executed"`
	Deaths   int64 `json:"deaths"`  // interpreters that died
	Starved  int64 `json:"starved"` // calls repeated because they had starved
}

// Stats returns a snapshot.
func (p *Pool) Stats() Stats {
	s := Stats{
		Slots: p.cfg.Slots, Queue: p.cfg.Queue,
		Executed: p.done.Load(), Deaths: p.deaths.Load(), Starved: p.starved.Load(),
	}
	s.Busy, s.Waiting = p.places.load()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		if w.alive() {
			s.Zygotes++
		}
	}
	return s
}
