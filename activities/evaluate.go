package activities

import (
	"context"
	"fmt"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/rl"
	"temper/internal/rollout"
)

// EvaluatePolicy measures a policy on the held-out problems of a stage.
// Errors: NotFound for a policy that was never published.
func (r *Rollouts) EvaluatePolicy(ctx context.Context, in EvaluateInput) (EvalResult, error) {
	out, err := r.evaluatePolicy(ctx, in)
	return out, toTemporal(err)
}

func (r *Rollouts) evaluatePolicy(ctx context.Context, in EvaluateInput) (EvalResult, error) {
	key := artifact.Layout{RunID: in.Run.RunID}.Eval(in.Stage, in.Label, in.Policy.Version)
	if done, ok, err := artifact.Lookup[EvalResult](ctx, r.Store, key); ok || err != nil {
		return done, err
	}
	started := r.Now()
	var out EvalResult
	err := r.sample(ctx, in.Run, in.Policy, func(ctx context.Context, s *sampler) (err error) {
		out, err = s.evaluate(ctx, in)
		return err
	})
	if err != nil {
		return EvalResult{}, err
	}
	out.Wall = r.Now().Sub(started)
	return artifact.PutOnce(ctx, r.Store, key, out)
}

// evaluate makes a greedy rollout of each problem and some sampled ones.
func (s *sampler) evaluate(ctx context.Context, in EvaluateInput) (EvalResult, error) {
	problems, err := readProblems(ctx, s.store, s.run.layout.HeldOutProblems(in.Stage))
	if err != nil {
		return EvalResult{}, err
	}
	spec := s.spec("eval-greedy", in.Stage, 0)
	spec.Temperature = 0
	greedy, err := s.collect(ctx, spec, problems, 1)
	if err != nil {
		return EvalResult{}, err
	}
	sampled, err := s.collect(ctx, s.spec("eval-sampled", in.Stage, 0), problems, s.run.cfg.Eval.Rollouts)
	if err != nil {
		return EvalResult{}, err
	}
	out := evalResult(greedy, sampled)
	out.Stage, out.Label, out.PolicyVersion = in.Stage, in.Label, in.Policy.Version
	out.TrajectoriesPath = s.run.layout.EvalTrajectories(in.Stage, in.Label, in.Policy.Version)
	data, err := trajectoryLines(append(greedy, sampled...))
	if err != nil {
		return EvalResult{}, fmt.Errorf("encode evaluation: %w", err)
	}
	_, err = blob.PutBytes(ctx, s.store, out.TrajectoriesPath, data, blob.Always)
	return out, err
}

// collect makes n rollouts of each problem and returns them in problem order.
func (s *sampler) collect(ctx context.Context, spec rollout.Spec, problems []rl.Problem, n int) ([]rl.Trajectory, error) {
	byID := map[string][]rl.Trajectory{}
	err := s.groups(ctx, spec, problems, n, func(g rl.Group) error {
		byID[g.Problem.ID] = g.Trajectories
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []rl.Trajectory
	for _, p := range problems {
		out = append(out, byID[p.ID]...)
	}
	return out, lost(out)
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
