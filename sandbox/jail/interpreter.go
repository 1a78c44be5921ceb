package jail

import (
	"context"
	"sync"
	"time"

	"temper/sandbox"
)

// Interpreter runs calls on a light zygote, and those that use a heavy module, or
// ask for the numeric profile, on a heavy one, which starts with the first such
// call. It is safe for concurrent use.
type Interpreter struct {
	jail  *Jail
	light *zygote

	mu       sync.Mutex
	heavy    *zygote
	spawner  *zygote       // of programs that may start processes
	starting chan struct{} // closed when the start under way ends; nil when none is
	closed   bool
}

// Run executes req in a fresh child and returns its result; zero limits take the
// defaults of the jail. The error is ErrDied when the zygote ended first, ErrStarved
// when the machine was too busy, and ctx.Err() when ctx ended first; the program is
// dead then.
func (in *Interpreter) Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if req.Session != "" { // a call that forgets would be a wrong answer
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusRefused, Reason: "sessions are not served here"}, nil
	}
	z, err := in.choose(ctx, req)
	if err != nil {
		return sandbox.Result{}, err
	}
	return z.run(ctx, req)
}

// choose returns the zygote for req. A profile that does not exist is refused by
// whichever runs it.
func (in *Interpreter) choose(ctx context.Context, req sandbox.Request) (*zygote, error) {
	j := in.jail
	if req.Profile == sandbox.ProfileSubprocess && j.refuseSpawn(req) == "" {
		return in.spawnZygote(ctx)
	}
	if j.cfg.Fresh != nil || len(j.py.Available) == 0 {
		return in.light, nil
	}
	if req.Profile == sandbox.ProfileNumeric || req.Profile == sandbox.ProfileAuto && usesAny(req, j.py.Available) {
		return in.heavyZygote(ctx)
	}
	return in.light, nil
}

// heavyZygote returns the heavy zygote, starting it when there is none; when it
// does not start, the light one has to do.
func (in *Interpreter) heavyZygote(ctx context.Context) (*zygote, error) {
	in.mu.Lock()
	if in.heavy != nil && in.heavy.alive() {
		defer in.mu.Unlock()
		return in.heavy, nil
	}
	if in.closed {
		defer in.mu.Unlock()
		return nil, ErrDied
	}
	if in.starting == nil {
		in.starting = make(chan struct{})
		go in.startHeavy(context.WithoutCancel(ctx), in.starting)
	}
	starting := in.starting
	in.mu.Unlock()
	select {
	case <-starting:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.heavy != nil {
		return in.heavy, nil
	}
	return in.light, nil
}

// startHeavy starts the heavy zygote; Close waits for done.
func (in *Interpreter) startHeavy(ctx context.Context, done chan struct{}) {
	preload := append(append([]string{}, in.jail.cfg.Preload...), in.jail.py.Available...)
	z, err := in.jail.start(ctx, preload, false)
	if err != nil {
		in.jail.cfg.Logger.Warn("heavy sandbox interpreter does not start", "err", err)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.heavy = z
	in.starting = nil
	close(done)
}

// spawnZygote returns the zygote of programs that may start processes. The first of them
// waits for its start with the lock held: the profile is for few calls.
func (in *Interpreter) spawnZygote(ctx context.Context) (*zygote, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil, ErrDied
	}
	if in.spawner == nil || !in.spawner.alive() {
		z, err := in.jail.start(ctx, in.jail.cfg.Preload, true)
		if err != nil {
			return nil, err
		}
		in.spawner = z
	}
	return in.spawner, nil
}

// Done is closed when the interpreter is gone.
func (in *Interpreter) Done() <-chan struct{} { return in.light.done }

// CPU returns the processor time of the interpreter and of the calls that it has
// finished.
func (in *Interpreter) CPU() time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	sum := in.light.cpu()
	for _, z := range []*zygote{in.heavy, in.spawner} {
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
	for _, z := range []*zygote{in.light, in.heavy, in.spawner} {
		if z != nil && z.alive() {
			pids = append(pids, z.pid())
		}
	}
	return pids
}

// Close kills the zygotes with everything they hold and waits for their end.
func (in *Interpreter) Close() {
	in.mu.Lock()
	in.closed = true
	starting := in.starting
	in.mu.Unlock()
	if starting != nil {
		<-starting
	}
	in.mu.Lock()
	others := []*zygote{in.heavy, in.spawner}
	in.mu.Unlock()
	for _, z := range others {
		if z != nil {
			z.close()
		}
	}
	in.light.close()
}
