package activities

import (
	"context"
	"fmt"
	"sync/atomic"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/failpoint"
	"temper/internal/rl"
	"temper/internal/rollout"
)

// sampler is one activity's use of a run's engine.
type sampler struct {
	run      *runContext
	cfg      config.Run // as it is at the step that is sampled for
	store    blob.Store
	runner   *rollout.Runner
	policy   Policy
	finished atomic.Int64 // groups
}

// sample calls f with the engine of a run that serves the policy, while the
// server is told that the activity lives. The configuration is as it is at step.
func (r *Rollouts) sample(ctx context.Context, run RunRef, p Policy, step int, f func(context.Context, *sampler) error) error {
	s := &sampler{store: r.Store, policy: p}
	ctx, stop := heartbeat(ctx, func() string { return r.progress(s.finished.Load()) })
	defer stop()
	entry, release, err := r.acquire(ctx, run, p)
	if err != nil {
		return err
	}
	defer release()
	s.run, s.cfg = entry.run, entry.run.cfg.At(step)
	if s.runner, err = r.newRunner(s.run, s.cfg, entry.engine); err != nil {
		return err
	}
	return f(ctx, s)
}

// spec is the part of a rollout's Spec that the stage decides.
func (s *sampler) spec(purpose string, stage, step int) rollout.Spec {
	cfg := s.cfg
	limits := cfg.Stages[stage-1]
	return rollout.Spec{
		RunID: s.run.run.RunID, Purpose: purpose, Stage: stage, Step: step, Seed: cfg.Seed, Version: s.policy.Version,
		Temperature: float32(cfg.Rollout.Temperature), MaxResponseTokens: limits.MaxResponseTokens, MaxTurns: limits.MaxTurns,
	}
}

// groups samples n trajectories of each problem; see rollout.Runner.Groups.
func (s *sampler) groups(ctx context.Context, spec rollout.Spec, problems []rl.Problem, n int, done func(rl.Group) error) error {
	return s.runner.Groups(ctx, spec, problems, n, func(g rl.Group) error {
		s.finished.Add(1)
		return done(g)
	})
}

// SampleGroups samples the groups of a step. Groups that are in the store
// already, from an attempt that died, are kept as they are.
func (r *Rollouts) SampleGroups(ctx context.Context, in SampleGroupsInput) (SampleGroupsResult, error) {
	started := r.Now()
	var out SampleGroupsResult
	err := r.sample(ctx, in.Run, in.Policy, in.Step, func(ctx context.Context, s *sampler) (err error) {
		out, err = s.step(ctx, in)
		return err
	})
	out.Wall = r.Now().Sub(started)
	return out, toTemporal(err)
}

func (s *sampler) step(ctx context.Context, in SampleGroupsInput) (SampleGroupsResult, error) {
	var out SampleGroupsResult
	layout := s.run.layout
	problems, err := problemsByID(ctx, s.store, layout.TrainProblems(in.Stage), in.ProblemIDs)
	if err != nil {
		return out, err
	}
	key := func(problemID string) string { return layout.Group(in.Step, problemID) }
	found, todo, err := s.lookup(ctx, problems, key)
	if err != nil {
		return out, err
	}
	for _, g := range found {
		out.Reused++
		out.add(g)
	}
	err = s.groups(ctx, s.spec("train", in.Stage, in.Step), todo, s.cfg.RL.RolloutsPerProblem, func(g rl.Group) error {
		if err := lost(g.Trajectories); err != nil {
			return fmt.Errorf("group %s: %w", g.Problem.ID, err)
		}
		out.add(g)
		failpoint.Hit("sampling/before-group")
		if err := writeGroup(ctx, s.store, key(g.Problem.ID), g); err != nil {
			return err
		}
		failpoint.Hit("sampling/after-group")
		return nil
	})
	return out, err
}

// lookup divides problems into those whose groups are stored and the others.
func (s *sampler) lookup(ctx context.Context, problems []rl.Problem, key func(problemID string) string) (found []rl.Group, todo []rl.Problem, err error) {
	for _, p := range problems {
		group, ok, err := lookupGroup(ctx, s.store, key(p.ID), p)
		switch {
		case err != nil:
			return nil, nil, err
		case ok:
			found = append(found, group)
		default:
			todo = append(todo, p)
		}
	}
	return found, todo, nil
}

// lost is the error of trajectories that the infrastructure lost without
// exception. They are not stored, and so will be sampled again: a service that
// is down must not spend the problems of a run.
func lost(ts []rl.Trajectory) error {
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

func (s *SampleGroupsResult) add(g rl.Group) {
	s.Groups++
	for i := range g.Trajectories {
		t := &g.Trajectories[i]
		calls, _ := t.ToolCounts()
		s.Trajectories++
		s.ToolCalls += calls
		s.Tokens += t.ResponseTokens()
		s.SampleTime += t.SampleTime
		s.ToolTime += t.ToolTime
		if t.StopReason == rl.StopInfraError {
			s.InfraErrors++
		}
	}
}
