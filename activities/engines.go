package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/env"
	"temper/internal/rollout"
	"temper/internal/tokenizer"
	"temper/trainer/qwen3"
)

// runContext is what a worker needs to know of a run, all of it immutable.
type runContext struct {
	run    RunRef
	layout artifact.Layout
	cfg    config.Run
	format *chat.Format
	model  qwen3.Config
	// start is where the weights come from; nil for random ones.
	start *Start
	// tokenizerJSON and files are published beside the weights.
	tokenizerJSON []byte
	files         map[string][]byte
}

func loadRun(ctx context.Context, store blob.Store, run RunRef) (*runContext, error) {
	cfg, err := readConfig(ctx, store, run)
	if err != nil {
		return nil, err
	}
	r := &runContext{run: run, layout: artifact.Layout{RunID: run.RunID}, cfg: cfg}
	if r.tokenizerJSON, err = blob.ReadKey(ctx, store, r.layout.Tokenizer()); err != nil {
		return nil, fmt.Errorf("tokenizer of run %s: %w", run.RunID, err)
	}
	tok, err := tokenizer.Parse(r.tokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("tokenizer of run %s: %w", run.RunID, err)
	}
	tmpl, err := readTemplate(ctx, store, r.layout, cfg)
	if err != nil {
		return nil, err
	}
	if r.format, err = chat.New(tok, chatConfig(cfg, tmpl)); err != nil {
		return nil, err
	}
	if err := r.readStart(ctx, store); err != nil {
		return nil, err
	}
	r.takeTemplate(tmpl)
	return r, nil
}

// maxEngines bounds the runs whose engines are kept; each holds its weights and caches.
const maxEngines = 4

// engines keeps one engine for each run that this worker serves. The one unused
// for the longest time makes room.
type engines struct {
	mu     sync.Mutex
	byRun  map[string]*engineEntry // by run id
	serial int
}

// engineEntry is the engine of a run. Who holds its turn decides which policy it
// serves, so that an evaluation cannot take the policy away from a step.
type engineEntry struct {
	run    *runContext // written by who has the turn
	engine Engine
	turn   chan struct{}
	users  int // have or await the turn
	used   int // serial of the last use
}

// acquire waits for the turn of a run's engine and makes it serve the policy.
func (r *Rollouts) acquire(ctx context.Context, run RunRef, p Policy) (*engineEntry, func(), error) {
	entry, err := r.entry(ctx, run)
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
	if entry.run.run != run { // amended since
		rc, err := loadRun(ctx, r.Store, run)
		if err != nil {
			release()
			return nil, nil, err
		}
		entry.run = rc
	}
	if err := load(ctx, entry.engine, p); err != nil {
		release()
		return nil, nil, fmt.Errorf("load policy %d of run %s: %w", p.Version, run.RunID, err)
	}
	return entry, release, nil
}

// load tells a policy that was never published from a store that fails.
func load(ctx context.Context, engine Engine, p Policy) error {
	if p.Ref.IsZero() {
		return permanent(ErrTypeNotFound, errors.New("it was never published"))
	}
	err := engine.Load(ctx, p.Ref, p.Version)
	if errors.Is(err, blob.ErrNotExist) {
		return permanent(ErrTypeNotFound, err)
	}
	return err
}

// entry finds or makes the engine of a run and counts the caller as its user.
func (r *Rollouts) entry(ctx context.Context, run RunRef) (*engineEntry, error) {
	e := &r.engines
	e.mu.Lock()
	defer e.mu.Unlock()
	entry, ok := e.byRun[run.RunID]
	if !ok {
		var err error
		if err = e.makeRoom(); err != nil {
			return nil, err
		}
		if entry, err = r.newEntry(ctx, run); err != nil {
			return nil, err
		}
		if e.byRun == nil {
			e.byRun = map[string]*engineEntry{}
		}
		e.byRun[run.RunID] = entry
	}
	e.serial++
	entry.users++
	entry.used = e.serial
	return entry, nil
}

func (r *Rollouts) newEntry(ctx context.Context, run RunRef) (*engineEntry, error) {
	rc, err := loadRun(ctx, r.Store, run)
	if err != nil {
		return nil, err
	}
	engine, err := r.NewEngine(rc.cfg, rc.model)
	if err != nil {
		return nil, fmt.Errorf("engine of run %s: %w", run.RunID, err)
	}
	return &engineEntry{run: rc, engine: engine, turn: make(chan struct{}, 1)}, nil
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

// CloseEngines ends all engines. Call it when no activity runs any more. It is no
// method, since each exported method is registered as an activity.
func CloseEngines(r *Rollouts) {
	r.engines.mu.Lock()
	defer r.engines.mu.Unlock()
	for _, entry := range r.engines.byRun {
		entry.engine.Close()
	}
	r.engines.byRun = nil
}

// Pauses between attempts on an engine or a sandbox that fails: 70 attempts
// span more than a minute, enough for a killed process to come back, and none is
// long beside what its start takes.
const (
	rolloutAttempts   = 70
	rolloutBackoff    = 50 * time.Millisecond
	rolloutMaxBackoff = time.Second
)

// newRunner makes a runner under the limits of a configuration.
func (r *Rollouts) newRunner(rc *runContext, cfg config.Run, engine Engine) (*rollout.Runner, error) {
	c := cfg.Rollout
	return rollout.New(rollout.Config{
		ToolTimeout: c.ToolTimeout, ToolMemory: int64(c.ToolMemory),
		MaxToolResponseChars: c.MaxToolResponseChars, MaxCallsPerTurn: c.MaxCallsPerTurn,
		MaxConcurrent: r.MaxConcurrent, MaxAttempts: rolloutAttempts,
		Backoff: rolloutBackoff, MaxBackoff: rolloutMaxBackoff,
	}, rollout.Deps{
		Engine: engine, Executor: watchedExecutor{r.Executor, &r.trouble}, Format: rc.format, Env: env.ByName, Now: r.Now,
	})
}
