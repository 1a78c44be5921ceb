package sampling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/env"
	"temper/internal/fault"
	"temper/internal/inference"
	"temper/internal/reward"
	"temper/internal/rollout"
	"temper/internal/run"
	"temper/internal/tool"
	"temper/sandbox"
)

// maxEngines bounds the open engines; each holds weights and caches.
const maxEngines = 4

// engines holds the engines of the runs that this worker serves. A run mostly has one. With
// rl.window it may have up to Config.Policies, one for each policy, so that the tail of a
// step and the next steps are sampled side by side. The idle engine that was used least
// recently is closed first.
type engines struct {
	mu     sync.Mutex
	byRun  map[string]*pool // by run id
	serial int
}

// pool holds the engines of a run, and the calls that use them or wait for one.
type pool struct {
	run     *run.Loaded // of the call before
	probed  bool        // the code of the run can be imported
	engines []*engineEntry
	changed chan struct{} // closed and made anew when a waiting call may proceed
	calls   map[string]bool
	waiting []int64 // versions that calls wait for
}

// engineEntry is an engine of a run. Calls for the policy that it serves share it; the
// policy stays while the engine has users.
type engineEntry struct {
	engine  Engine
	version int64 // that it serves or loads; -1 for none
	loading bool
	users   int
	used    int  // serial of the last use
	told    bool // how long the trajectories before it became
}

// use is the engine of a call until it is released.
type use struct {
	run    *run.Loaded
	engine Engine
}

// acquire makes an engine of a run serve a policy until release. Calls of one name wait for
// each other: an abandoned attempt may still run in this process.
func (r *Service) acquire(ctx context.Context, t target) (use, func(), error) {
	e := &r.engines
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pool(t.run.RunID)
	p.waiting = append(p.waiting, t.policy.Version)
	out, entry, err := r.await(ctx, p, t)
	at := slices.Index(p.waiting, t.policy.Version)
	p.waiting = slices.Delete(p.waiting, at, at+1)
	p.wake()
	if err != nil {
		e.forget(t.run.RunID)
		return use{}, nil, err
	}
	e.serial++
	entry.used, p.calls[t.name] = e.serial, true
	release := func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		entry.users--
		delete(p.calls, t.name)
		p.wake()
	}
	return out, release, nil
}

// await waits for an engine that serves the policy, and counts the caller among its
// users. The lock is held, except while it waits or loads.
func (r *Service) await(ctx context.Context, p *pool, t target) (use, *engineEntry, error) {
	loaded, err := r.ready(ctx, p, t.run)
	if err != nil {
		return use{}, nil, err
	}
	for {
		if ctx.Err() != nil {
			return use{}, nil, context.Cause(ctx)
		}
		entry, err := r.choose(p, t, loaded)
		if err != nil {
			return use{}, nil, err
		}
		if entry != nil {
			return use{loaded, entry.engine}, entry, r.load(ctx, p, entry, t, loaded)
		}
		p.prefetch(ctx, t.policy)
		changed := p.changed
		r.engines.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		r.engines.mu.Lock()
	}
}

// ready loads the configuration of a run when it has changed, and has the sandbox import
// the run's code once. It releases the lock meanwhile.
func (r *Service) ready(ctx context.Context, p *pool, ref run.Ref) (*run.Loaded, error) {
	if p.run != nil && p.run.Ref == ref && p.probed {
		return p.run, nil
	}
	probed := p.probed
	r.engines.mu.Unlock()
	loaded, err := run.Load(ctx, r.Store, ref)
	if err == nil && !probed {
		err = r.probeCode(ctx, loaded)
	}
	r.engines.mu.Lock()
	if err == nil {
		p.run, p.probed = loaded, true
	}
	return loaded, err
}

// choose returns the engine for a policy; nil when the call has to wait. Among waiting
// calls the oldest policy comes first: the next step to learn waits for it.
func (r *Service) choose(p *pool, t target, loaded *run.Loaded) (*engineEntry, error) {
	if p.calls[t.name] {
		return nil, nil
	}
	for _, entry := range p.engines {
		if entry.version != t.policy.Version {
			continue
		}
		if entry.loading {
			return nil, nil
		}
		entry.users++
		return entry, nil
	}
	if p.olderWaits(t.policy.Version) {
		return nil, nil
	}
	var idle *engineEntry
	for _, entry := range p.engines {
		if entry.users == 0 && (idle == nil || entry.version < idle.version) {
			idle = entry
		}
	}
	if idle != nil {
		idle.users++
		return idle, nil
	}
	most := 1
	if r.Policies != nil && loaded.Config.RL.Window > 0 {
		most = max(1, r.Policies(loaded))
	}
	if len(p.engines) >= most {
		return nil, nil
	}
	if err := r.engines.makeRoom(); err != nil {
		if len(p.engines) > 0 { // the pool keeps its engines
			return nil, nil
		}
		return nil, err
	}
	engine, err := r.NewEngine(loaded)
	if err != nil {
		return nil, fmt.Errorf("engine of run %s: %w", t.run.RunID, err)
	}
	entry := &engineEntry{engine: engine, version: -1, users: 1}
	p.engines = append(p.engines, entry)
	return entry, nil
}

// olderWaits reports whether a call with an older policy waits for a free engine. A call
// whose policy is in a used engine waits for that engine instead. The lock is held.
func (p *pool) olderWaits(version int64) bool {
	return slices.ContainsFunc(p.waiting, func(older int64) bool {
		return older < version && !slices.ContainsFunc(p.engines, func(e *engineEntry) bool { return e.version == older && e.users > 0 })
	})
}

// prefetch lets the only engine of a run read the policy of a waiting call while it samples
// the tail of another step. The next call in turn decides, since the engine prefetches one
// policy at a time. With several engines, one reads while another samples anyway. The lock
// is held.
func (p *pool) prefetch(ctx context.Context, next run.Policy) {
	if len(p.engines) != 1 || next.Ref.IsZero() || p.olderWaits(next.Version) {
		return
	}
	only := p.engines[0]
	if reader, ok := only.engine.(inference.Prefetcher); ok && !only.loading && only.version != next.Version {
		reader.Prefetch(ctx, next.Ref, next.Version)
	}
}

// load makes an engine with one user serve a policy. It releases the lock meanwhile.
func (r *Service) load(ctx context.Context, p *pool, entry *engineEntry, t target, loaded *run.Loaded) error {
	if entry.version == t.policy.Version && entry.users > 1 {
		return nil
	}
	told := entry.told
	entry.version, entry.loading, entry.told = t.policy.Version, true, true
	r.engines.mu.Unlock()
	if !told {
		r.recall(ctx, entry.engine, loaded, t.step)
	}
	err := loadPolicy(ctx, entry.engine, t.policy)
	r.engines.mu.Lock()
	entry.loading = false
	if err != nil {
		entry.version = -1
		entry.users--
		return fmt.Errorf("load policy %d of run %s: %w", t.policy.Version, t.run.RunID, err)
	}
	p.wake()
	return nil
}

// wake makes waiting calls look again. The lock is held.
func (p *pool) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Prepare makes the engine of a run serve a policy.
func (r *Service) Prepare(ctx context.Context, ref run.Ref, p run.Policy) error {
	_, release, err := r.acquire(ctx, target{run: ref, policy: p, name: "prepare"})
	if err == nil {
		release()
	}
	return err
}

// loadPolicy makes an engine serve a policy. Errors: NotFound for a policy that was never
// published; a failing store gives another error.
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

// pool finds or makes the pool of a run. The lock is held.
func (e *engines) pool(runID string) *pool {
	p, ok := e.byRun[runID]
	if !ok {
		p = &pool{changed: make(chan struct{}), calls: map[string]bool{}}
		if e.byRun == nil {
			e.byRun = map[string]*pool{}
		}
		e.byRun[runID] = p
	}
	return p
}

// forget removes the pool of a run without engines and calls. The lock is held.
func (e *engines) forget(runID string) {
	if p := e.byRun[runID]; p != nil && len(p.engines) == 0 && len(p.waiting) == 0 {
		delete(e.byRun, runID)
	}
}

// makeRoom closes the idle engine that was used least recently when there are too many.
func (e *engines) makeRoom() error {
	all, oldest, of := 0, (*engineEntry)(nil), ""
	for runID, p := range e.byRun {
		all += len(p.engines)
		for _, entry := range p.engines {
			if entry.users == 0 && (oldest == nil || entry.used < oldest.used) {
				oldest, of = entry, runID
			}
		}
	}
	if all < maxEngines {
		return nil
	}
	if oldest == nil {
		return errors.New("all engines of this worker are in use: wait for another run to end or add rollout workers")
	}
	oldest.engine.Close()
	p := e.byRun[of]
	p.engines = slices.DeleteFunc(p.engines, func(entry *engineEntry) bool { return entry == oldest })
	e.forget(of)
	return nil
}

// close ends all engines.
func (e *engines) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.byRun {
		for _, entry := range p.engines {
			entry.engine.Close()
		}
	}
	e.byRun = nil
}

// Attempts on a failing engine or sandbox, and the pauses between them. 70 attempts take
// more than a minute, in which a killed process comes back. No pause is long compared to
// the start of a process.
const (
	rolloutAttempts   = 70
	rolloutBackoff    = 50 * time.Millisecond
	rolloutMaxBackoff = time.Second
)

// newRunner returns a runner under the limits of a configuration. It adds each program
// that runs to the counter programs.
func (r *Service) newRunner(loaded *run.Loaded, cfg config.Run, engine Engine, programs *atomic.Int64) (*rollout.Runner, error) {
	c := cfg.Rollout
	sessions, _ := r.Executor.(sandbox.SessionCloser)
	executor := watchedExecutor{r.Executor, &r.trouble, programs}
	return rollout.New(rollout.Config{
		MaxToolResponseChars: c.MaxToolResponseChars, MaxCallsPerTurn: c.MaxCallsPerTurn,
		MaxConcurrent: r.MaxConcurrent, NoText: true, KeepOutputs: cfg.Tracker.ToolOutputs, MaxAttempts: rolloutAttempts,
		Backoff: rolloutBackoff, MaxBackoff: rolloutMaxBackoff,
	}, rollout.Deps{
		Engine: engine, Executor: executor, Sessions: sessions, Format: loaded.Format, Env: env.ByName, Now: r.Now,
		Tools: tool.NewSet(tool.Config{
			Executor: executor, Limits: toolLimits(c), SessionTools: c.Tools.WithSession(), Files: loaded.Code.Tools,
		}),
		Reward: ownReward(loaded.Code, cfg.Reward), Answer: reward.Mode(c.AnswerMode()),
	})
}
