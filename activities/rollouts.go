package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/dataset"
	"temper/internal/rl"
	"temper/internal/rollout"
)

// SampleGroups samples the groups of a step. Groups that are in the store
// already, from an attempt that died, are kept as they are.
func (r *Rollouts) SampleGroups(ctx context.Context, in SampleGroupsInput) (SampleGroupsResult, error) {
	out, err := r.sampleGroups(ctx, in)
	return out, toTemporal(err)
}

func (r *Rollouts) sampleGroups(ctx context.Context, in SampleGroupsInput) (SampleGroupsResult, error) {
	started := r.Now()
	entry, release, err := r.acquire(ctx, in.Run, in.Policy)
	if err != nil {
		return SampleGroupsResult{}, err
	}
	defer release()
	problems, err := problemsByID(ctx, r.Store, entry.run.layout.TrainProblems(in.Stage), in.ProblemIDs)
	if err != nil {
		return SampleGroupsResult{}, err
	}
	var out SampleGroupsResult
	var todo []rl.Problem
	for _, p := range problems {
		group, err := readGroup(ctx, r.Store, entry.run.layout, in.Step, p)
		switch {
		case errors.Is(err, blob.ErrNotExist):
			todo = append(todo, p)
		case err != nil:
			return out, err
		default:
			out.Reused++
			out.add(group)
		}
	}
	runner, err := r.runner(entry)
	if err != nil {
		return out, err
	}
	var finished atomic.Int64
	stop := heartbeat(ctx, func() any { return fmt.Sprintf("%d of %d groups", finished.Load(), len(todo)) })
	defer stop()
	spec := entry.spec("train", in.Stage, in.Step, in.Policy.Version)
	err = runner.Groups(ctx, spec, todo, entry.run.cfg.RL.RolloutsPerProblem, func(g rl.Group) error {
		finished.Add(1)
		out.add(g)
		return writeGroup(ctx, r.Store, entry.run.layout, in.Step, g)
	})
	out.Wall = r.Now().Sub(started)
	return out, err
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

// writeGroup stores a group as JSON lines unless another attempt was faster.
func writeGroup(ctx context.Context, store blob.Store, layout artifact.Layout, step int, g rl.Group) error {
	data, err := trajectoryLines(g.Trajectories)
	if err != nil {
		return fmt.Errorf("encode group %s: %w", g.Problem.ID, err)
	}
	_, err = blob.PutBytes(ctx, store, layout.Group(step, g.Problem.ID), data, blob.IfAbsent)
	if errors.Is(err, blob.ErrExists) {
		return nil
	}
	return err
}

func trajectoryLines(ts []rl.Trajectory) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for i := range ts {
		if err := enc.Encode(&ts[i]); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), nil
}

func readGroup(ctx context.Context, store blob.Store, layout artifact.Layout, step int, p rl.Problem) (rl.Group, error) {
	data, err := blob.ReadKey(ctx, store, layout.Group(step, p.ID))
	if err != nil {
		return rl.Group{}, err
	}
	g := rl.Group{Problem: p}
	dec := json.NewDecoder(bytes.NewReader(data))
	for dec.More() {
		var t rl.Trajectory
		if err := dec.Decode(&t); err != nil {
			return g, fmt.Errorf("%s: trajectory %d: %w", store.Locate(layout.Group(step, p.ID)), len(g.Trajectories), err)
		}
		if err := t.Validate(); err != nil {
			return g, err
		}
		g.Trajectories = append(g.Trajectories, t)
	}
	return g, nil
}

// problemsByID reads the problems of a set in the order of ids.
func problemsByID(ctx context.Context, store blob.Store, key string, ids []string) ([]rl.Problem, error) {
	all, err := readProblems(ctx, store, key)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]rl.Problem, len(all))
	for _, p := range all {
		byID[p.ID] = p
	}
	out := make([]rl.Problem, 0, len(ids))
	for _, id := range ids {
		p, ok := byID[id]
		if !ok {
			return nil, fmt.Errorf("%s: no problem %q", store.Locate(key), id)
		}
		out = append(out, p)
	}
	return out, nil
}

func readProblems(ctx context.Context, store blob.Store, key string) ([]rl.Problem, error) {
	data, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return nil, err
	}
	return dataset.ReadProblems(bytes.NewReader(data), store.Locate(key))
}

// EvaluatePolicy measures a policy on the held-out problems of a stage.
func (r *Rollouts) EvaluatePolicy(ctx context.Context, in EvaluateInput) (EvalResult, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	if done, ok, err := artifact.Lookup[EvalResult](ctx, r.Store, layout.Eval(in.Stage, in.Label, in.Policy.Version)); ok || err != nil {
		return done, toTemporal(err)
	}
	out, err := r.evaluate(ctx, in)
	if err != nil {
		return out, toTemporal(err)
	}
	out, err = artifact.PutOnce(ctx, r.Store, layout.Eval(in.Stage, in.Label, in.Policy.Version), out)
	return out, toTemporal(err)
}

func (r *Rollouts) evaluate(ctx context.Context, in EvaluateInput) (EvalResult, error) {
	started := r.Now()
	entry, release, err := r.acquire(ctx, in.Run, in.Policy)
	if err != nil {
		return EvalResult{}, err
	}
	defer release()
	stop := heartbeat(ctx, func() any { return in.Label })
	defer stop()
	problems, err := readProblems(ctx, r.Store, entry.run.layout.HeldOutProblems(in.Stage))
	if err != nil {
		return EvalResult{}, err
	}
	runner, err := r.runner(entry)
	if err != nil {
		return EvalResult{}, err
	}
	greedy := entry.spec("eval-greedy", in.Stage, 0, in.Policy.Version)
	greedy.Temperature = 0
	a, err := collect(ctx, runner, greedy, problems, 1)
	if err != nil {
		return EvalResult{}, err
	}
	b, err := collect(ctx, runner, entry.spec("eval-sampled", in.Stage, 0, in.Policy.Version), problems, 1)
	if err != nil {
		return EvalResult{}, err
	}
	data, err := trajectoryLines(append(a, b...))
	if err != nil {
		return EvalResult{}, err
	}
	key := entry.run.layout.EvalTrajectories(in.Stage, in.Label, in.Policy.Version)
	if _, err := blob.PutBytes(ctx, r.Store, key, data, blob.Always); err != nil {
		return EvalResult{}, err
	}
	out := evalResult(a, b)
	out.Stage, out.Label, out.PolicyVersion = in.Stage, in.Label, in.Policy.Version
	out.TrajectoriesPath = key
	out.Wall = r.Now().Sub(started)
	return out, nil
}

// collect runs n rollouts of each problem and returns them in problem order.
func collect(ctx context.Context, runner *rollout.Runner, spec rollout.Spec, problems []rl.Problem, n int) ([]rl.Trajectory, error) {
	byID := map[string][]rl.Trajectory{}
	err := runner.Groups(ctx, spec, problems, n, func(g rl.Group) error {
		byID[g.Problem.ID] = g.Trajectories
		return nil
	})
	var out []rl.Trajectory
	for _, p := range problems {
		out = append(out, byID[p.ID]...)
	}
	return out, err
}

// evalResult sums up greedy and sampled rollouts of the same problems.
func evalResult(greedy, sampled []rl.Trajectory) EvalResult {
	g, s := tally(greedy), tally(sampled)
	return EvalResult{
		NumProblems: len(greedy),
		Accuracy:    g.mean(g.reward), SampledAccuracy: s.mean(s.reward),
		ToolErrorRate: ratio(s.failed, s.calls), GreedyErrorRate: ratio(g.failed, g.calls),
		MeanTokens: g.mean(float64(g.tokens)), MeanTurns: g.mean(float64(g.turns)), MeanCalls: g.mean(float64(g.calls)),
		InfraErrors: g.infra + s.infra,
		SampleTime:  g.sample + s.sample, ToolTime: g.tool + s.tool,
	}
}

// counts sums trajectories; those that the infrastructure lost count only as such.
type counts struct {
	n, calls, failed, tokens, turns, infra, clipped int
	reward                                          float64
	sample, tool                                    time.Duration
}

func (c *counts) mean(v float64) float64 {
	if c.n == 0 {
		return 0
	}
	return v / float64(c.n)
}

func tally(ts []rl.Trajectory) counts {
	var c counts
	for i := range ts {
		c.add(&ts[i])
	}
	return c
}

func (c *counts) add(t *rl.Trajectory) {
	c.sample += t.SampleTime
	c.tool += t.ToolTime
	if t.StopReason == rl.StopInfraError {
		c.infra++
		return
	}
	calls, failed := t.ToolCounts()
	c.n++
	c.calls += calls
	c.failed += failed
	c.tokens += t.ResponseTokens()
	c.turns += len(t.Turns)
	c.reward += t.Reward
	if t.StopReason == rl.StopMaxTokens {
		c.clipped++
	}
}

// storedFilter is a FilterResult with the problems that were removed.
type storedFilter struct {
	FilterResult
	PolicyVersion int64    `json:"policy_version"`
	RemovedIDs    []string `json:"removed_ids"`
}

// FilterProblems samples every training problem of a stage with the current
// policy and removes those that all rollouts solve (recipe, RL stage 3).
func (r *Rollouts) FilterProblems(ctx context.Context, in FilterInput) (FilterResult, error) {
	key := artifact.Layout{RunID: in.Run.RunID}.Filter(in.Stage)
	if done, ok, err := artifact.Lookup[storedFilter](ctx, r.Store, key); ok || err != nil {
		return done.FilterResult, toTemporal(err)
	}
	f, err := r.filter(ctx, in)
	if err != nil {
		return FilterResult{}, toTemporal(err)
	}
	f, err = artifact.PutOnce(ctx, r.Store, key, f)
	return f.FilterResult, toTemporal(err)
}

func (r *Rollouts) filter(ctx context.Context, in FilterInput) (storedFilter, error) {
	started := r.Now()
	entry, release, err := r.acquire(ctx, in.Run, in.Policy)
	if err != nil {
		return storedFilter{}, err
	}
	defer release()
	problems, err := readProblems(ctx, r.Store, entry.run.layout.TrainProblems(in.Stage))
	if err != nil {
		return storedFilter{}, err
	}
	runner, err := r.runner(entry)
	if err != nil {
		return storedFilter{}, err
	}
	var finished atomic.Int64
	stop := heartbeat(ctx, func() any { return fmt.Sprintf("%d of %d problems", finished.Load(), len(problems)) })
	defer stop()
	solved := map[string]bool{}
	spec := entry.spec("filter", in.Stage, 0, in.Policy.Version)
	err = runner.Groups(ctx, spec, problems, entry.run.cfg.Stages[in.Stage-1].Filter.Rollouts, func(g rl.Group) error {
		finished.Add(1)
		solved[g.Problem.ID] = solvedByAll(g.Trajectories)
		return nil
	})
	if err != nil {
		return storedFilter{}, err
	}
	out := storedFilter{PolicyVersion: in.Policy.Version, RemovedIDs: []string{}}
	for _, p := range problems {
		if solved[p.ID] {
			out.RemovedIDs = append(out.RemovedIDs, p.ID)
		}
	}
	// A stage needs one step's worth of problems: solved ones stay to fill it up.
	if left := len(problems) - len(out.RemovedIDs); left > 0 {
		missing := max(0, entry.run.cfg.RL.ProblemsPerStep-left)
		out.RemovedIDs = out.RemovedIDs[:len(out.RemovedIDs)-missing]
	}
	out.FilterResult = FilterResult{
		Problems: len(problems), Removed: len(out.RemovedIDs), Left: len(problems) - len(out.RemovedIDs),
		Wall: r.Now().Sub(started),
	}
	return out, nil
}

// solvedByAll: a rollout that the infrastructure lost is no evidence, so that
// its problem stays.
func solvedByAll(ts []rl.Trajectory) bool {
	for i := range ts {
		if ts[i].Reward != 1 || ts[i].StopReason == rl.StopInfraError {
			return false
		}
	}
	return len(ts) > 0
}
