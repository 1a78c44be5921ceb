package sampling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/proc/failpoint"
	"temper/internal/reward"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/record"
	"temper/internal/series"
	"temper/sandbox/status"
)

// EvaluateInput asks for held-out accuracy of a policy on one stage's problems.
type EvaluateInput struct {
	Run    run.Ref    `json:"run"`
	Stage  int        `json:"stage"` // index from 1
	Policy run.Policy `json:"policy"`
	// Label names the result: "before" or "after" of a stage, or "final".
	Label string `json:"label"`
	// Set is the name of a set of eval.sets, in place of a stage and a label.
	Set string `json:"set,omitempty"`
}

// keys of what an evaluation stores.
func (in EvaluateInput) result() string {
	layout := artifact.Layout{RunID: in.Run.RunID}
	if in.Set != "" {
		return layout.EvalSet(in.Set, in.Policy.Version).Result()
	}
	return layout.Eval(in.Stage, in.Label, in.Policy.Version).Result()
}

func (in EvaluateInput) trajectories() string {
	layout := artifact.Layout{RunID: in.Run.RunID}
	if in.Set != "" {
		return layout.EvalSet(in.Set, in.Policy.Version).Trajectories()
	}
	return layout.Eval(in.Stage, in.Label, in.Policy.Version).Trajectories()
}

func (in EvaluateInput) group(how, problemID string) string {
	layout := artifact.Layout{RunID: in.Run.RunID}
	if in.Set != "" {
		return layout.EvalSet(in.Set, in.Policy.Version).Group(how, problemID)
	}
	return layout.Eval(in.Stage, in.Label, in.Policy.Version).Group(how, problemID)
}

func (in EvaluateInput) problems() string {
	layout := artifact.Layout{RunID: in.Run.RunID}
	if in.Set != "" {
		return layout.Data().EvalSet(in.Set)
	}
	return layout.Stage(in.Stage).HeldOut()
}

// Evaluate measures a policy on the held-out problems of a stage, or on a set.
// Errors: NotFound for a policy that was never published.
func (r *Service) Evaluate(ctx context.Context, in EvaluateInput, progress *Progress) (run.Evaluation, error) {
	key := in.result()
	if done, ok, err := artifact.Lookup[run.Evaluation](ctx, r.Store, key); ok || err != nil {
		return done, err
	}
	started := r.Now()
	var out run.Evaluation
	err := r.withEngine(ctx, target{in.Run, in.Policy, int(in.Policy.Version), fmt.Sprintf("evaluation %s of stage %d", in.Label, in.Stage)}, progress, func(s *sampler) (err error) {
		out, err = s.evaluate(ctx, in)
		return err
	})
	if err != nil {
		return run.Evaluation{}, err
	}
	out.Wall = r.Now().Sub(started)
	failpoint.Hit("evaluate/before-result")
	return artifact.PutOnce(ctx, r.Store, key, out)
}

// evaluation is an evaluation under way. Its groups are stored as they end, so that
// another attempt samples only the rest. When all are there, they become one record
// and are deleted one by one.
type evaluation struct {
	*sampler
	in       EvaluateInput
	problems []rl.Problem
	plan     evalPlan
}

// evalPlan is how the problems of an evaluation are sampled.
type evalPlan struct {
	greedy   bool // one more rollout at temperature 0
	rollouts int
	spec     func(purpose string) rollout.Spec
}

// planOf is the plan of the held-out problems of a stage, or of a set.
func (s *sampler) planOf(in EvaluateInput) (evalPlan, error) {
	if in.Set == "" {
		return evalPlan{greedy: true, rollouts: s.cfg.Eval.Rollouts, spec: func(purpose string) rollout.Spec { return s.spec(purpose, in.Stage, 0) }}, nil
	}
	sets := s.cfg.Eval.Sets
	at := slices.IndexFunc(sets, func(e config.EvalSet) bool { return e.Name == in.Set })
	if at < 0 {
		return evalPlan{}, fault.Newf(fault.InvalidConfig, "eval.sets has no set %q", in.Set)
	}
	set := sets[at]
	return evalPlan{greedy: set.Greedy, rollouts: set.Rollouts, spec: func(purpose string) rollout.Spec {
		return rollout.Spec{
			RunID: s.run.Ref.RunID, Purpose: purpose + "-" + set.Name, Seed: s.cfg.Seed, Version: s.policy.Version,
			Temperature: float32(set.Temperature), MaxResponseTokens: set.MaxResponseTokens, MaxTurns: set.MaxTurns,
		}
	}}, nil
}

// How the rollouts of an evaluation are sampled.
const (
	evalGreedy  = "greedy"
	evalSampled = "sampled"
)

// evaluate makes a greedy rollout of each problem, where that is asked for, and some
// sampled ones.
func (s *sampler) evaluate(ctx context.Context, in EvaluateInput) (run.Evaluation, error) {
	problems, err := run.ReadProblems(ctx, s.store, in.problems())
	if err != nil {
		return run.Evaluation{}, err
	}
	e := evaluation{sampler: s, in: in, problems: problems}
	if e.plan, err = s.planOf(in); err != nil {
		return run.Evaluation{}, err
	}
	path := in.trajectories()
	all, ref, ok, err := lookupTrajectories(ctx, s.store, path)
	if err == nil && !ok {
		all, ref, err = e.sampleRecord(ctx, path)
	}
	if err != nil {
		return run.Evaluation{}, err
	}
	greedy := 0
	if e.plan.greedy {
		greedy = len(problems)
	}
	if want := greedy + len(problems)*e.plan.rollouts; len(all) != want {
		return run.Evaluation{}, fmt.Errorf("%s: %d trajectories, want %d: %w", s.store.Locate(path), len(all), want, blob.ErrCorrupt)
	}
	if err := e.deleteGroups(ctx); err != nil {
		return run.Evaluation{}, err
	}
	out := evalResult(all[:greedy], all[greedy:])
	out.NumProblems = len(problems)
	out.Stage, out.Label, out.Set, out.PolicyVersion, out.TrajectoriesPath, out.Record = in.Stage, in.Label, in.Set, in.Policy.Version, path, ref
	if s.cfg.SFT.Gate.On() {
		out.Copied, out.Copies = copied(all[greedy:])
	}
	return out, nil
}

// sampleRecord samples what is missing and stores all trajectories as one record, the
// greedy ones first.
func (e *evaluation) sampleRecord(ctx context.Context, path string) ([]rl.Trajectory, blob.Ref, error) {
	var all []rl.Trajectory
	if e.plan.greedy {
		spec := e.plan.spec("eval-greedy")
		spec.Temperature = 0
		var err error
		if all, err = e.sampleAll(ctx, spec, evalGreedy, 1); err != nil {
			return nil, blob.Ref{}, err
		}
	}
	sampled, err := e.sampleAll(ctx, e.plan.spec("eval-sampled"), evalSampled, e.plan.rollouts)
	if err != nil {
		return nil, blob.Ref{}, err
	}
	all = append(all, sampled...)
	e.groups.addTexts(all) // those of which nothing was stored have none
	data, err := record.Lines(all)
	if err != nil {
		return nil, blob.Ref{}, fault.OfEncoding(fmt.Errorf("encode evaluation: %w", err))
	}
	failpoint.Hit("evaluate/before-record")
	ref, err := blob.PutBytes(ctx, e.store, path, data, blob.Always)
	return all, ref, err
}

// sampleAll makes n rollouts of each problem and returns them in the order of the
// problems. It does not store those that the infrastructure lost.
func (e *evaluation) sampleAll(ctx context.Context, spec rollout.Spec, how string, n int) ([]rl.Trajectory, error) {
	key := func(problemID string) string { return e.in.group(how, problemID) }
	byID := map[string][]rl.Trajectory{}
	todo, err := e.eachStored(ctx, e.problems, key, func(g storedGroup) error {
		byID[g.Problem.ID] = g.Trajectories
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = e.sampleProblems(ctx, spec, todo, n, func(g rl.Group) error {
		byID[g.Problem.ID] = g.Trajectories
		if allLost(g.Trajectories) != nil {
			return nil
		}
		_, err := e.groups.writeLines(ctx, key(g.Problem.ID), g)
		failpoint.Hit("evaluate/after-group")
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []rl.Trajectory
	for _, p := range e.problems {
		out = append(out, byID[p.ID]...)
	}
	return out, errors.Join(allLost(out), allUnjudged(out))
}

// deleteGroups deletes the groups of single problems: the record holds them.
func (e *evaluation) deleteGroups(ctx context.Context) error {
	for _, how := range []string{evalGreedy, evalSampled} {
		for _, p := range e.problems {
			if err := e.store.Delete(ctx, e.in.group(how, p.ID)); err != nil {
				return err
			}
		}
	}
	return nil
}

// copied is the share of answers after a call that worked which equal the result of the
// last one, and the number of such answers.
func copied(sampled []rl.Trajectory) (share float64, answers int) {
	same := 0
	for i := range sampled {
		t := &sampled[i]
		if t.Excluded() || t.Answer == "" {
			continue
		}
		last := ""
		for _, turn := range t.Turns {
			for _, c := range turn.Calls {
				if last = ""; c.Status == status.OK {
					last = strings.TrimSpace(c.Response)
				}
			}
		}
		if last == "" {
			continue
		}
		answers++
		if reward.Equal(t.Answer, last) {
			same++
		}
	}
	if answers == 0 {
		return 0, 0
	}
	return float64(same) / float64(answers), answers
}

// evalResult sums up greedy and sampled rollouts of the same problems. Without greedy
// ones the sampled ones say all.
func evalResult(greedy, sampled []rl.Trajectory) run.Evaluation {
	g, s := tally(greedy), tally(sampled)
	if len(greedy) == 0 {
		g = s
		g.infra, g.sample, g.tool = 0, 0, 0
	}
	return run.Evaluation{
		Accuracy: g.Mean(g.Reward), SampledAccuracy: s.Mean(s.Reward),
		ToolErrorRate: s.ToolErrorRate(), GreedyErrorRate: g.ToolErrorRate(),
		MeanTokens: g.Mean(float64(g.Tokens)), MeanTurns: g.Mean(float64(g.Turns)), MeanCalls: g.Mean(float64(g.Calls)),
		InfraErrors: g.infra + s.infra,
		SampleTime:  g.sample + s.sample, ToolTime: g.tool + s.tool,
	}
}

// counts sums up trajectories with the time that they took; excluded ones count only
// as such.
type counts struct {
	series.Tally
	infra        int
	sample, tool time.Duration
}

func tally(ts []rl.Trajectory) counts {
	var c counts
	for i := range ts {
		t := &ts[i]
		c.sample += t.SampleTime
		c.tool += t.ToolTime
		if t.Excluded() {
			c.infra++
			continue
		}
		c.Add(t)
	}
	return c
}
