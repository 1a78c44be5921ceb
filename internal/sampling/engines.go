package sampling

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/env"
	"temper/internal/fault"
	"temper/internal/rollout"
	"temper/internal/run"
	"temper/internal/tool"
	"temper/sandbox"
)

// maxEngines bounds the runs whose engines are kept; each holds its weights and caches.
const maxEngines = 4

// engines keeps one engine for each run that this worker serves. The one unused
// for the longest time makes room.
type engines struct {
	mu     sync.Mutex
	byRun  map[string]*engineEntry // by run id
	serial int
}

// engineEntry is the engine of a run. One call at a time has the turn and decides
// which policy the engine serves, so that an evaluation cannot replace the policy of
// a step under way.
type engineEntry struct {
	run    *run.Loaded // written by the call that has the turn
	engine Engine
	turn   chan struct{}
	probed bool // the code of the run can be imported
	users  int  // calls that have the turn or wait for it
	used   int  // serial of the last use
}

// acquire waits for the turn of a run's engine and makes it serve the policy.
func (r *Service) acquire(ctx context.Context, ref run.Ref, p run.Policy) (*engineEntry, func(), error) {
	entry, err := r.useEngine(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	leave := func() {
		r.engines.mu.Lock()
		defer r.engines.mu.Unlock()
		entry.users--
	}
	select {
	case entry.turn <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, nil, context.Cause(ctx)
	}
	release := func() { <-entry.turn; leave() }
	if entry.run.Ref != ref { // amended since
		loaded, err := run.Load(ctx, r.Store, ref)
		if err != nil {
			release()
			return nil, nil, err
		}
		entry.run = loaded
	}
	if !entry.probed {
		if err := r.probeCode(ctx, entry.run); err != nil {
			release()
			return nil, nil, err
		}
		entry.probed = true
	}
	if err := loadPolicy(ctx, entry.engine, p); err != nil {
		release()
		return nil, nil, fmt.Errorf("load policy %d of run %s: %w", p.Version, ref.RunID, err)
	}
	return entry, release, nil
}

// Prepare makes the engine of a run serve a policy.
func (r *Service) Prepare(ctx context.Context, ref run.Ref, p run.Policy) error {
	_, release, err := r.acquire(ctx, ref, p)
	if err == nil {
		release()
	}
	return err
}

// loadPolicy makes an engine serve a policy. Errors: NotFound for one that was
// never published, unlike a store that fails.
func loadPolicy(ctx context.Context, engine Engine, p run.Policy) error {
	if p.Ref.IsZero() {
		return fault.New(fault.NotFound, errors.New("it was never published"))
	}
	err := blob.AtRef(engine.Load(ctx, p.Ref, p.Version), p.Ref)
	if errors.Is(err, blob.ErrNotExist) {
		return fault.New(fault.NotFound, err)
	}
	return err
}

// useEngine finds or makes the engine of a run and counts the caller as its user.
func (r *Service) useEngine(ctx context.Context, ref run.Ref) (*engineEntry, error) {
	e := &r.engines
	e.mu.Lock()
	defer e.mu.Unlock()
	entry, ok := e.byRun[ref.RunID]
	if !ok {
		var err error
		if err = e.makeRoom(); err != nil {
			return nil, err
		}
		if entry, err = r.newEntry(ctx, ref); err != nil {
			return nil, err
		}
		if e.byRun == nil {
			e.byRun = map[string]*engineEntry{}
		}
		e.byRun[ref.RunID] = entry
	}
	e.serial++
	entry.users++
	entry.used = e.serial
	return entry, nil
}

func (r *Service) newEntry(ctx context.Context, ref run.Ref) (*engineEntry, error) {
	loaded, err := run.Load(ctx, r.Store, ref)
	if err != nil {
		return nil, err
	}
	engine, err := r.NewEngine(loaded)
	if err != nil {
		return nil, fmt.Errorf("engine of run %s: %w", ref.RunID, err)
	}
	return &engineEntry{run: loaded, engine: engine, turn: make(chan struct{}, 1)}, nil
}

// makeRoom closes the idle engine that was used least recently when there are too many.
func (e *engines) makeRoom() error {
	if len(e.byRun) < maxEngines {
		return nil
	}
	var oldest string
	for run, entry := range e.byRun {
		if entry.users == 0 && (oldest == "" || entry.used < e.byRun[oldest].used) {
			oldest = run
		}
	}
	if oldest == "" {
		return errors.New("all engines of this worker are in use: wait for another run to end or add rollout workers")
	}
	e.byRun[oldest].engine.Close()
	delete(e.byRun, oldest)
	return nil
}

// close ends all engines.
func (e *engines) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, entry := range e.byRun {
		entry.engine.Close()
	}
	e.byRun = nil
}

// Pauses between attempts on an engine or a sandbox that fails. 70 attempts take more
// than a minute: time enough for a killed process to come back. No single pause is
// long beside the start of a process.
const (
	rolloutAttempts   = 70
	rolloutBackoff    = 50 * time.Millisecond
	rolloutMaxBackoff = time.Second
)

// newRunner makes a runner under the limits of a configuration. It counts in programs.
func (r *Service) newRunner(loaded *run.Loaded, cfg config.Run, engine Engine, programs *atomic.Int64) (*rollout.Runner, error) {
	c := cfg.Rollout
	sessions, _ := r.Executor.(sandbox.SessionCloser)
	executor := watchedExecutor{r.Executor, &r.trouble, programs}
	return rollout.New(rollout.Config{
		MaxToolResponseChars: c.MaxToolResponseChars, MaxCallsPerTurn: c.MaxCallsPerTurn,
		MaxConcurrent: r.MaxConcurrent, NoText: true, MaxAttempts: rolloutAttempts,
		Backoff: rolloutBackoff, MaxBackoff: rolloutMaxBackoff,
	}, rollout.Deps{
		Engine: engine, Executor: executor, Sessions: sessions, Format: loaded.Format, Env: env.ByName, Now: r.Now,
		Tools: tool.NewSet(tool.Config{
			Executor: executor, Limits: toolLimits(c), SessionTools: c.Tools.WithSession(), Files: loaded.Code.Tools,
		}),
		Reward: ownReward(loaded.Code, cfg.Reward),
	})
}
