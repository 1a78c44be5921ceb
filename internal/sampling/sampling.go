// Package sampling owns what is sampled for a run: one engine for each run that
// is served, the groups of a step, evaluations, the offline filter, and the batch
// of a step's groups. Package rollout knows how one trajectory is made.
//
// Invariant: what a step samples is a function of the run and the step. A stored
// group is never sampled again, whichever worker made it.
package sampling

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync/atomic"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/inference"
	"temper/internal/proc"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/internal/run"
	"temper/internal/run/chain"
	"temper/sandbox"
)

// Engine is a policy engine whose weights can be replaced and that can be closed.
type Engine interface {
	inference.Loader
	Close()
}

// Config is what a Service works with.
type Config struct {
	Store    blob.Store
	Executor sandbox.Executor
	// NewEngine makes an engine without weights for a run, by its configuration and
	// model.
	NewEngine func(*run.Loaded) (Engine, error)
	// Policies returns how many policies of a run with rl.window may be in engines at a time,
	// one in each engine; nil is one. With two, the tail of a step and the next steps are
	// sampled side by side, at the price of a second copy of weights and caches.
	Policies func(*run.Loaded) int
	// MaxConcurrent is the number of trajectories of a run that live at a time.
	MaxConcurrent int
	Now           func() time.Time
	// MadeBy describes this program and machine for the records of a run; nil for nothing.
	MadeBy func(config.Run) chain.Maker
	// Meter measures what the machine is busy with; nil does not.
	Meter *proc.Meter
}

// Service samples trajectories. Calls for different runs work side by side, and so do
// those for one run that need no more policies than its engines hold; others wait.
type Service struct {
	Config
	engines engines
	trouble atomic.Pointer[string] // see watchedExecutor
}

// New makes a service without engines.
func New(c Config) *Service { return &Service{Config: c} }

// Close ends all engines. No call may be under way.
func (r *Service) Close() { r.engines.close() }

// sampler is one call's use of a run's engine.
type sampler struct {
	run      *run.Loaded
	cfg      config.Run // as it is at the step that is sampled for
	store    blob.Store
	groups   groupWriter
	runner   *rollout.Runner
	policy   run.Policy
	progress *Progress
	engine   Engine
	programs atomic.Int64 // nanoseconds of processor time in the sandbox
	calls    callTimes    // of trajectories that ended; guarded by the gathering
}

// target is what to sample for: a run, a policy, and the step whose configuration counts.
// Equal names have equal sessions.
type target struct {
	run    run.Ref
	policy run.Policy
	step   int
	name   string
}

// withEngine calls f while the engine of a run serves the policy.
func (r *Service) withEngine(ctx context.Context, t target, progress *Progress, f func(*sampler) error) error {
	used, release, err := r.acquire(ctx, t)
	if err != nil {
		return err
	}
	defer release()
	s := &sampler{store: r.Store, policy: t.policy, progress: progress, run: used.run, cfg: used.run.Config.At(t.step), engine: used.engine, groups: groupWriter{used.run, r.Store, r.Now}}
	if s.runner, err = r.newRunner(s.run, s.cfg, s.engine, &s.programs); err != nil {
		return err
	}
	return f(s)
}

// spec is the part of a rollout's Spec that the stage decides.
func (s *sampler) spec(purpose string, stage, step int) rollout.Spec {
	cfg := s.cfg.InStage(stage - 1)
	limits := cfg.Stages[stage-1]
	return rollout.Spec{
		RunID: s.run.Ref.RunID, Purpose: purpose, Stage: stage, Step: step, Seed: cfg.Seed, Version: s.policy.Version,
		Temperature: float32(cfg.Rollout.Temperature), MaxResponseTokens: limits.MaxResponseTokens, MaxTurns: limits.MaxTurns,
	}
}

// sampleProblems samples n trajectories of each problem; see rollout.Runner.Groups.
func (s *sampler) sampleProblems(ctx context.Context, spec rollout.Spec, problems []rl.Problem, n int, done func(rl.Group) error) error {
	return s.runner.Groups(ctx, spec, problems, n, func(g rl.Group) error {
		s.progress.groups.Add(1)
		return done(g)
	})
}

// GroupsInput asks for the groups of some problems of a step.
type GroupsInput struct {
	Run        run.Ref    `json:"run"`
	Stage      int        `json:"stage"`
	Step       int        `json:"step"`
	ProblemIDs []string   `json:"problem_ids"`
	Policy     run.Policy `json:"policy"`
	// Until is the number of response tokens at which trajectories are cut that have not
	// ended; 0 = none is. Before are the spans that earlier calls have sampled of them.
	Until  int              `json:"until,omitempty"`
	Before []run.PolicySpan `json:"before,omitempty"`
}

// SampleGroups samples the groups of a step, except those that an earlier attempt
// has stored.
func (r *Service) SampleGroups(ctx context.Context, in GroupsInput, progress *Progress) (run.Sampled, error) {
	if err := in.check(); err != nil {
		return run.Sampled{}, err
	}
	for {
		out, err := r.sampleGroups(ctx, in, progress)
		var lost lostParts
		if !errors.As(err, &lost) {
			return out, err
		}
		if err := r.sampleLost(ctx, in, lost, progress); err != nil {
			return run.Sampled{}, err
		}
	}
}

func (r *Service) sampleGroups(ctx context.Context, in GroupsInput, progress *Progress) (run.Sampled, error) {
	started, span := r.Now(), r.Meter.Begin()
	var out run.Sampled
	var spent busy
	err := r.withEngine(ctx, target{in.Run, in.Policy, in.Step, fmt.Sprintf("step %d, problems %q", in.Step, in.ProblemIDs)}, progress, func(s *sampler) (err error) {
		passes, seen := passesOf(s.engine), newEngineMonitor(ctx, s.engine)
		loading := r.Now().Sub(started)
		out, err = s.sampleStep(ctx, in)
		spent = busy{programs: s.programs.Load(), passes: passesSince(passes, s.engine), usage: seen.end()}
		spent.usage.CallWall, spent.usage.CallQueue, spent.usage.Loading = s.calls.wall, s.calls.queue, loading
		spent.usage.Judging = s.runner.Judged()
		if r.MadeBy != nil {
			out.MadeBy = chain.AddMaker(nil, r.MadeBy(s.cfg))
		}
		return err
	})
	out.Wall = r.Now().Sub(started)
	out.Busy = spent.with(span.End())
	return out, err
}

func (s *sampler) sampleStep(ctx context.Context, in GroupsInput) (run.Sampled, error) {
	s.cfg = s.cfg.InStage(in.Stage - 1)
	problems, err := run.ProblemsByID(ctx, s.store, s.run.Layout.Stage(in.Stage).Train(), in.ProblemIDs)
	if err != nil {
		return run.Sampled{}, err
	}
	g := newGathering(s, in)
	todo, err := s.eachStored(ctx, problems, g.key, func(stored storedGroup) error {
		if len(in.Before) == 0 { // otherwise most of them ended with the call before
			g.out.Reused++
		}
		return g.keep(ctx, stored)
	})
	if err == nil {
		todo, err = g.withoutStored(ctx, todo)
	}
	if err == nil {
		err = g.sample(ctx, todo)
	}
	if err != nil || g.out.Open > 0 {
		return g.out, err
	}
	ordered := make([]run.GroupRecord, len(problems))
	for i, p := range problems {
		ordered[i] = g.records[p.ID]
	}
	shard, err := g.recorder.storeShard(ctx, ordered)
	g.out.Shards = []blob.Ref{shard}
	return g.out, err
}

// eachStored calls do with the groups of problems that are stored, one at a time: all
// of a step do not fit into memory. It returns the other problems. The keys lie in one
// folder.
func (s *sampler) eachStored(ctx context.Context, problems []rl.Problem, key func(problemID string) string, do func(storedGroup) error) (todo []rl.Problem, err error) {
	there, err := listed(ctx, s.store, path.Dir(key("")))
	if err != nil {
		return nil, err
	}
	for _, p := range problems {
		if !there[key(p.ID)] {
			todo = append(todo, p)
			continue
		}
		group, ok, err := lookupGroup(ctx, s.store, key(p.ID), p)
		if errors.Is(err, blob.ErrCorrupt) { // sampled again, it replaces what is there
			todo = append(todo, p)
			continue
		}
		if err == nil && ok {
			err = do(group)
		}
		if err != nil {
			return nil, err
		}
		if !ok { // deleted meanwhile
			todo = append(todo, p)
		}
	}
	return todo, nil
}

// listed is what lies directly in a folder. A call that begins asks once, and not for
// each of its problems: mostly nothing is there.
func listed(ctx context.Context, store blob.Store, folder string) (map[string]bool, error) {
	infos, _, err := store.ListFolder(ctx, folder)
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool, len(infos))
	for _, info := range infos {
		there[info.Key] = true
	}
	return there, nil
}

// allLost is the error of trajectories that the infrastructure lost, all of them.
// They are not stored, so that another attempt samples them again: a service that is
// down must not spend the problems of a run.
func allLost(ts []rl.Trajectory) error {
	for i := range ts {
		if ts[i].StopReason != rl.StopInfraError {
			return nil
		}
	}
	if len(ts) == 0 {
		return nil
	}
	return fmt.Errorf("the infrastructure lost all %d trajectories, the first by: %s", len(ts), ts[0].Err)
}

// allUnjudged is the error of an evaluation in which the run's own reward function
// judged nothing: no number would be true.
func allUnjudged(ts []rl.Trajectory) error {
	for i := range ts {
		if ts[i].StopReason != rl.StopRewardError {
			return nil
		}
	}
	if len(ts) == 0 {
		return nil
	}
	return fault.Newf(fault.UserCode, "the reward function judged none of %d trajectories, the first by: %s", len(ts), ts[0].Err)
}

// addGroup counts a group.
func addGroup(s *run.Sampled, g rl.Group) {
	s.Groups++
	for i := range g.Trajectories {
		t := &g.Trajectories[i]
		calls, _ := t.ToolCounts()
		s.Trajectories++
		s.ToolCalls += calls
		s.Tokens += t.ResponseTokens()
		s.SampleTime += t.SampleTime
		s.ToolTime += t.ToolTime
		if t.Excluded() {
			s.InfraErrors++
		}
	}
}
