package jail

import (
	"context"
	"errors"
	"sync"
	"time"

	"temper/sandbox"
)

// Interpreter runs calls on a light zygote. Calls that use a heavy module or ask for the
// numeric profile run on a heavy zygote, and calls that may start processes on a third;
// both start with the first such call. It is safe for concurrent use.
type Interpreter struct {
	jail  *Jail
	light *zygote

	mu      sync.Mutex
	heavy   lazyZygote
	spawner lazyZygote // runs programs that may start processes
	closed  bool
}

// lazyZygote is a zygote that starts with the first call that needs it.
type lazyZygote struct {
	preload []string // with spawn, the arguments of Jail.start
	spawn   bool

	// Guarded by Interpreter.mu.
	zygote   *zygote
	err      error         // of the last start that failed
	starting chan struct{} // closed when the running start ends; nil otherwise
}

// Run executes req in a fresh child and returns its result; zero limits take the defaults
// of the jail. It returns ErrDied when the zygote ended first, ErrStarved when the machine
// was too busy, and ctx.Err() when ctx ended first; in all three cases the program is dead.
func (in *Interpreter) Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if req.Session != "" { // a call without the state of its session would answer wrongly
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusRefused, Reason: "sessions are not served here"}, nil
	}
	z, err := in.choose(ctx, req)
	if err != nil {
		return sandbox.Result{}, err
	}
	return z.run(ctx, req)
}

// choose returns the zygote for req. Each zygote refuses an unknown profile.
func (in *Interpreter) choose(ctx context.Context, req sandbox.Request) (*zygote, error) {
	j := in.jail
	if req.Profile == sandbox.ProfileSubprocess && j.refuseSpawn(req) == "" {
		return in.started(ctx, &in.spawner)
	}
	if j.cfg.Fresh != nil || len(j.py.Available) == 0 {
		return in.light, nil
	}
	if req.Profile == sandbox.ProfileNumeric || req.Profile == sandbox.ProfileAuto && usesAny(req, j.py.Available) {
		z, err := in.started(ctx, &in.heavy)
		if err == nil || errors.Is(err, ErrDied) || ctx.Err() != nil {
			return z, err
		}
	}
	return in.light, nil // also where the heavy one does not start
}

// started returns a zygote and starts it if there is none. The start continues when ctx
// ends, so that the next call can use it.
func (in *Interpreter) started(ctx context.Context, l *lazyZygote) (*zygote, error) {
	in.mu.Lock()
	if l.zygote != nil && l.zygote.alive() {
		defer in.mu.Unlock()
		return l.zygote, nil
	}
	if in.closed {
		defer in.mu.Unlock()
		return nil, ErrDied
	}
	if l.starting == nil {
		l.starting = make(chan struct{})
		go in.start(context.WithoutCancel(ctx), l)
	}
	starting := l.starting
	in.mu.Unlock()
	select {
	case <-starting:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return l.zygote, l.err
}

// start starts a zygote. Close waits for it.
func (in *Interpreter) start(ctx context.Context, l *lazyZygote) {
	z, err := in.jail.start(ctx, l.preload, l.spawn)
	if err != nil {
		in.jail.cfg.Logger.Warn("further sandbox interpreter does not start", "for_subprocesses", l.spawn, "err", err)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	l.zygote, l.err = z, err
	close(l.starting)
	l.starting = nil
}

// Done is closed when the interpreter is gone.
func (in *Interpreter) Done() <-chan struct{} { return in.light.done }

// CPU returns the processor time of the zygotes and of their finished calls.
func (in *Interpreter) CPU() time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	sum := in.light.cpu()
	for _, z := range []*zygote{in.heavy.zygote, in.spawner.zygote} {
		if z != nil {
			sum += z.cpu()
		}
	}
	return sum
}

// PIDs returns the process ids of the zygotes that are alive.
func (in *Interpreter) PIDs() []int {
	in.mu.Lock()
	defer in.mu.Unlock()
	var pids []int
	for _, z := range []*zygote{in.light, in.heavy.zygote, in.spawner.zygote} {
		if z != nil && z.alive() {
			pids = append(pids, z.pid())
		}
	}
	return pids
}

// Close kills the zygotes with all their children and waits until they have ended.
func (in *Interpreter) Close() {
	in.mu.Lock()
	in.closed = true
	starts := []chan struct{}{in.heavy.starting, in.spawner.starting}
	in.mu.Unlock()
	for _, starting := range starts {
		if starting != nil {
			<-starting
		}
	}
	in.mu.Lock()
	others := []*zygote{in.heavy.zygote, in.spawner.zygote}
	in.mu.Unlock()
	for _, z := range others {
		if z != nil {
			z.close()
		}
	}
	in.light.close()
}
