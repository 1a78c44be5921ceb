package ui

import (
	"fmt"
	"slices"

	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/record"
)

// EvalRow is an evaluation with the name that finds its trajectories.
type EvalRow struct {
	Name string `json:"name"`
	run.Evaluation
}

// evalPages serves the evaluations of a run.
type evalPages struct{ reader *runReader }

func (ep *evalPages) showEvals(r *request) ([]EvalRow, error) {
	h, err := ep.reader.open(r)
	if err != nil {
		return nil, err
	}
	evals, err := h.Evaluations(r.Context())
	out := []EvalRow{}
	for _, e := range evals {
		out = append(out, EvalRow{Name: evalName(e), Evaluation: e})
	}
	return out, err
}

func evalName(e run.Evaluation) string {
	if e.Set != "" {
		return fmt.Sprintf("set-%s-%d", e.Set, e.PolicyVersion)
	}
	return fmt.Sprintf("%d-%s-%d", e.Stage, e.Label, e.PolicyVersion)
}

// evaluation returns the evaluation that the path names, with its trajectories. Keys come
// from the stored evaluation, never from the request.
func (ep *evalPages) evaluation(r *request) (*history.Run, run.Evaluation, []rl.Trajectory, error) {
	h, err := ep.reader.open(r)
	if err != nil {
		return nil, run.Evaluation{}, nil, err
	}
	evals, err := h.Evaluations(r.Context())
	if err != nil {
		return nil, run.Evaluation{}, nil, err
	}
	name := r.PathValue("eval")
	i := slices.IndexFunc(evals, func(e run.Evaluation) bool { return evalName(e) == name })
	if i < 0 {
		return nil, run.Evaluation{}, nil, missing("run %s has no evaluation %s", h.ID(), brief(name))
	}
	ts, err := history.RolloutsOf(h).EvaluationTrajectories(r.Context(), evals[i])
	return h, evals[i], ts, err
}

func (ep *evalPages) showEval(r *request) (Columns, error) {
	h, e, ts, err := ep.evaluation(r)
	if err != nil {
		return Columns{}, err
	}
	greedy := e.NumProblems
	if e.Set != "" {
		cfg, err := h.Config(r.Context())
		if err != nil {
			return Columns{}, err
		}
		if !slices.ContainsFunc(cfg.Eval.Sets, func(set config.EvalSet) bool { return set.Name == e.Set && set.Greedy }) {
			greedy = 0
		}
	}
	rows := make([]record.Row, len(ts))
	for i := range ts {
		rows[i] = record.RowOf(&ts[i])
		rows[i].Rollout, rows[i].Fate = i, "sampled"
		if i < greedy {
			rows[i].Fate = "greedy"
		}
	}
	out := columnsOf(rows)
	out.Source = "evaluation"
	return out, out.encode()
}

// showEvalTrajectory takes k as the index in the record: greedy and sampled rollouts of a
// problem share their numbers.
func (ep *evalPages) showEvalTrajectory(r *request) (TrajectoryView, error) {
	h, e, ts, err := ep.evaluation(r)
	if err != nil {
		return TrajectoryView{}, err
	}
	k, err := r.number("k")
	if err != nil {
		return TrajectoryView{}, err
	}
	if k >= len(ts) || ts[k].ProblemID != r.PathValue("problem") {
		return TrajectoryView{}, missing("the evaluation has no trajectory %d of problem %s", k, brief(r.PathValue("problem")))
	}
	ctx := r.Context()
	p, err := ep.reader.findProblem(ctx, h, problemsOf{stage: e.Stage, heldOut: true, set: e.Set}, ts[k].ProblemID)
	if err != nil {
		return TrajectoryView{}, err
	}
	out, err := view(ctx, h, &ts[k], p)
	out.Rollout = k
	for i := range ts {
		if ts[i].ProblemID == p.ID {
			out.Rollouts = append(out.Rollouts, i)
		}
	}
	return out, err
}
