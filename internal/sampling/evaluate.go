package sampling

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/failpoint"
	"temper/internal/fault"
	"temper/internal/record"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/internal/run"
	"temper/internal/series"
)

// EvaluateInput asks for held-out accuracy of a policy on one stage's problems.
type EvaluateInput struct {
	Run    run.Ref    `json:"run"`
	Stage  int        `json:"stage"` // index from 1
	Policy run.Policy `json:"policy"`
	// Label names the result: "before" or "after" of a stage, or "final".
	Label string `json:"label"`
}

// Evaluate measures a policy on the held-out problems of a stage.
// Errors: NotFound for a policy that was never published.
func (r *Service) Evaluate(ctx context.Context, in EvaluateInput, progress *Progress) (run.Evaluation, error) {
	key := artifact.Layout{RunID: in.Run.RunID}.Eval(in.Stage, in.Label, in.Policy.Version)
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
}

// How the rollouts of an evaluation are sampled.
const (
	evalGreedy  = "greedy"
	evalSampled = "sampled"
)

// evaluate makes a greedy rollout of each problem and some sampled ones.
func (s *sampler) evaluate(ctx context.Context, in EvaluateInput) (run.Evaluation, error) {
	problems, err := run.ReadProblems(ctx, s.store, s.run.Layout.HeldOutProblems(in.Stage))
	if err != nil {
		return run.Evaluation{}, err
	}
	e := evaluation{sampler: s, in: in, problems: problems}
	path := s.run.Layout.EvalTrajectories(in.Stage, in.Label, in.Policy.Version)
	all, ref, ok, err := lookupTrajectories(ctx, s.store, path)
	if err == nil && !ok {
		all, ref, err = e.sampleRecord(ctx, path)
	}
	if err != nil {
		return run.Evaluation{}, err
	}
	if want := len(problems) * (1 + s.cfg.Eval.Rollouts); len(all) != want {
		return run.Evaluation{}, fmt.Errorf("%s: %d trajectories, want %d: %w", s.store.Locate(path), len(all), want, blob.ErrCorrupt)
	}
	if err := e.deleteGroups(ctx); err != nil {
		return run.Evaluation{}, err
	}
	out := evalResult(all[:len(problems)], all[len(problems):])
	out.Stage, out.Label, out.PolicyVersion, out.TrajectoriesPath, out.Record = in.Stage, in.Label, in.Policy.Version, path, ref
	return out, nil
}

// sampleRecord samples what is missing and stores all trajectories as one record, the
// greedy ones first.
func (e *evaluation) sampleRecord(ctx context.Context, path string) ([]rl.Trajectory, blob.Ref, error) {
	spec := e.spec("eval-greedy", e.in.Stage, 0)
	spec.Temperature = 0
	all, err := e.sampleAll(ctx, spec, evalGreedy, 1)
	if err != nil {
		return nil, blob.Ref{}, err
	}
	sampled, err := e.sampleAll(ctx, e.spec("eval-sampled", e.in.Stage, 0), evalSampled, e.cfg.Eval.Rollouts)
	if err != nil {
		return nil, blob.Ref{}, err
	}
	all = append(all, sampled...)
	e.addTexts(all) // those of which nothing was stored have none
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
	key := func(problemID string) string {
		return e.run.Layout.EvalGroup(e.in.Stage, e.in.Label, e.in.Policy.Version, how, problemID)
	}
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
		_, err := e.writeLines(ctx, key(g.Problem.ID), g)
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
			if err := e.store.Delete(ctx, e.run.Layout.EvalGroup(e.in.Stage, e.in.Label, e.in.Policy.Version, how, p.ID)); err != nil {
				return err
			}
		}
	}
	return nil
}

// evalResult sums up greedy and sampled rollouts of the same problems.
func evalResult(greedy, sampled []rl.Trajectory) run.Evaluation {
	g, s := tally(greedy), tally(sampled)
	return run.Evaluation{
		NumProblems: len(greedy),
		Accuracy:    g.Mean(g.Reward), SampledAccuracy: s.Mean(s.Reward),
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
