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
)

// runContext is what a worker needs to know of a run, all of it immutable.
type runContext struct {
	run    RunRef
	layout artifact.Layout
	cfg    config.Run
	format *chat.Format
	// tokenizerJSON is published beside the weights.
	tokenizerJSON []byte
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
	r.format, err = chat.New(tok, chatConfig(cfg))
	return r, err
}

func chatConfig(cfg config.Run) chat.Config {
	return chat.Config{SystemPrompt: cfg.Rollout.SystemPrompt, ToolsInPrompt: cfg.Rollout.ToolsInPrompt}
}

// maxEngines bounds the runs whose engines are kept; each holds its weights and caches.
const maxEngines = 4

// engines keeps one engine for each run that this worker serves. The one unused
// for the longest time makes room.
type engines struct {
	mu     sync.Mutex
	byRun  map[string]*engineEntry
	serial int
}

type engineEntry struct {
	run    *runContext
	engine Engine
	users  int
	used   int // serial of the last use
}

// acquire returns the run's context and its engine serving the given policy.
func (r *Rollouts) acquire(ctx context.Context, run RunRef, p Policy) (*engineEntry, func(), error) {
	entry, release, err := r.entry(ctx, run)
	if err != nil {
		return nil, nil, err
	}
	if err := entry.engine.Load(ctx, p.Ref, p.Version); err != nil {
		release()
		return nil, nil, fmt.Errorf("load policy %d of run %s: %w", p.Version, run.RunID, err)
	}
	return entry, release, nil
}

func (r *Rollouts) entry(ctx context.Context, run RunRef) (*engineEntry, func(), error) {
	e := &r.engines
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byRun == nil {
		e.byRun = map[string]*engineEntry{}
	}
	entry, ok := e.byRun[run.RunID]
	if !ok {
		rc, err := loadRun(ctx, r.Store, run)
		if err != nil {
			return nil, nil, err
		}
		if err := e.makeRoom(); err != nil {
			return nil, nil, err
		}
		engine, err := r.NewEngine(rc.cfg, rc.format.Tokenizer().VocabSize())
		if err != nil {
			return nil, nil, fmt.Errorf("engine of run %s: %w", run.RunID, err)
		}
		entry = &engineEntry{run: rc, engine: engine}
		e.byRun[run.RunID] = entry
	}
	e.serial++
	entry.users++
	entry.used = e.serial
	return entry, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		entry.users--
	}, nil
}

// makeRoom closes the idle engine that was used least recently when there are too many.
func (e *engines) makeRoom() error {
	if len(e.byRun) < maxEngines {
		return nil
	}
	oldest := ""
	for id, entry := range e.byRun {
		if entry.users == 0 && (oldest == "" || entry.used < e.byRun[oldest].used) {
			oldest = id
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

// Pauses between attempts on an engine or a sandbox that fails: 12 attempts
// span more than a minute, enough for a killed process to come back.
const (
	rolloutAttempts   = 12
	rolloutBackoff    = 50 * time.Millisecond
	rolloutMaxBackoff = 10 * time.Second
)

func (r *Rollouts) runner(entry *engineEntry) (*rollout.Runner, error) {
	c := entry.run.cfg.Rollout
	return rollout.New(rollout.Config{
		ToolTimeout: c.ToolTimeout, ToolMemory: int64(c.ToolMemory),
		MaxToolResponseChars: c.MaxToolResponseChars, MaxCallsPerTurn: c.MaxCallsPerTurn,
		MaxConcurrent: r.MaxConcurrent, MaxAttempts: rolloutAttempts,
		Backoff: rolloutBackoff, MaxBackoff: rolloutMaxBackoff,
	}, rollout.Deps{
		Engine: entry.engine, Executor: r.Executor, Format: entry.run.format, Env: env.ByName, Now: r.Now,
	})
}

// spec is the part of a rollout's Spec that the stage decides.
func (entry *engineEntry) spec(purpose string, stage, step int, version int64) rollout.Spec {
	cfg := entry.run.cfg
	s := cfg.Stages[stage-1]
	return rollout.Spec{
		RunID: entry.run.run.RunID, Purpose: purpose, Stage: stage, Step: step, Seed: cfg.Seed, Version: version,
		Temperature: float32(cfg.Rollout.Temperature), MaxResponseTokens: s.MaxResponseTokens, MaxTurns: s.MaxTurns,
	}
}
