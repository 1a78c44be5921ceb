package export

import (
	"context"
	"io"
	"iter"

	"temper/internal/blob"
	"temper/internal/dataset/rows"
	"temper/internal/history"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/record"
)

// Rollout is a trajectory in the columns that verl dumps rollouts in (input, output, gts,
// score, step), and behind them what only we know.
type Rollout struct {
	Input   string   `parquet:"input"`
	Output  string   `parquet:"output"`
	GTs     string   `parquet:"gts"`
	Score   float64  `parquet:"score"`
	Step    int64    `parquet:"step"`
	UID     string   `parquet:"uid"` // the problem: of all rollouts of a group
	Rollout int64    `parquet:"rollout"`
	Stage   int64    `parquet:"stage"`
	Acc     float64  `parquet:"acc"`
	Pred    string   `parquet:"pred"`
	Fate    string   `parquet:"fate"`
	Stop    string   `parquet:"stop_reason"`
	Turns   int64    `parquet:"num_turns"`
	Calls   int64    `parquet:"tool_calls"`
	Failed  int64    `parquet:"tool_calls_failed"`
	Prompt  int64    `parquet:"prompt_length"`
	Tokens  int64    `parquet:"response_length"`
	Version int64    `parquet:"policy_version"`
	Adv     *float64 `parquet:"advantage,optional"`
}

// Rollouts writes the stored trajectories of the steps from first to last as Parquet, and
// returns how many there were. It passes over groups that were deleted or are damaged.
func Rollouts(ctx context.Context, r *history.Run, first, last int, w io.Writer) (n int, err error) {
	list := func(yield func(Rollout, error) bool) {
		for row, err := range rollouts(ctx, r, first, last) {
			if err == nil {
				n++
			}
			if !yield(row, err) {
				return
			}
		}
	}
	err = rows.WriteParquet(w, list)
	return n, err
}

func rollouts(ctx context.Context, r *history.Run, first, last int) iter.Seq2[Rollout, error] {
	return func(yield func(Rollout, error) bool) {
		e, err := r.Entry(ctx)
		if err != nil {
			yield(Rollout{}, err)
			return
		}
		o := history.RolloutsOf(r)
		keys := map[int]map[string]rl.Problem{}
		for step := max(1, first); step <= min(last, e.Step); step++ {
			if err := exportStep(ctx, r, o, step, keys, yield); err != nil {
				if err != errStop { //nolint:errorlint // it is that very value
					yield(Rollout{}, err)
				}
				return
			}
		}
	}
}

// errStop tells a writer that the reader has stopped.
var errStop = io.ErrClosedPipe

// exportStep yields the trajectories of a step. keys are the problems of the stages read.
func exportStep(ctx context.Context, r *history.Run, o history.Rollouts, step int, keys map[int]map[string]rl.Problem, yield func(Rollout, error) bool) error {
	problems, err := r.Problems(ctx, step)
	if err != nil {
		return err
	}
	type place struct {
		problem string
		rollout int
	}
	known := map[place]record.Row{}
	index, _, err := o.Index(ctx, step)
	if err != nil && !blob.IsDamage(err) {
		return err
	}
	for _, row := range index {
		known[place{row.Problem, row.Rollout}] = row
	}
	stage := stageOf(r.Plan, step)
	for _, id := range problems {
		ts, err := r.Group(ctx, step, id)
		if blob.IsDamage(err) {
			continue
		}
		if err != nil {
			return err
		}
		for i := range ts {
			t := &ts[i]
			p, err := problemOf(ctx, o, keys, t)
			if err != nil {
				return err
			}
			row := known[place{id, t.Rollout}]
			out := rolloutOf(t, p, row)
			out.Stage = int64(stage)
			if !yield(out, nil) {
				return errStop
			}
		}
	}
	return nil
}

// stageOf is the stage of the plan that has a step. A trajectory of a stage that repeats another
// names that one, whose problems it has.
func stageOf(p run.Plan, step int) int {
	for _, s := range p.Stages {
		if step >= s.FirstStep && step < s.FirstStep+s.Steps {
			return s.Index
		}
	}
	return 0
}

// problemOf is the problem of a trajectory; one that the data of its stage does not have
// keeps its id alone.
func problemOf(ctx context.Context, o history.Rollouts, keys map[int]map[string]rl.Problem, t *rl.Trajectory) (rl.Problem, error) {
	if keys[t.Stage] == nil {
		list, err := o.TrainProblems(ctx, t.Stage)
		if err != nil && !blob.IsDamage(err) {
			return rl.Problem{}, err
		}
		keys[t.Stage] = map[string]rl.Problem{}
		for _, p := range list {
			keys[t.Stage][p.ID] = p
		}
	}
	return keys[t.Stage][t.ProblemID], nil
}

func rolloutOf(t *rl.Trajectory, p rl.Problem, row record.Row) Rollout {
	calls, failed := t.ToolCounts()
	acc := 0.0
	if t.Reward > 0 {
		acc = 1
	}
	return Rollout{
		Input: p.Prompt, Output: t.Text, GTs: p.Answer, Score: t.Reward, Step: int64(t.Step), UID: t.ProblemID, Rollout: int64(t.Rollout),
		Acc: acc, Pred: t.Answer, Fate: row.Fate, Stop: string(t.StopReason), Turns: int64(len(t.Turns)), Calls: int64(calls), Failed: int64(failed),
		Prompt: int64(t.PromptTokens), Tokens: int64(t.ResponseTokens()), Version: t.PolicyVersion, Adv: row.Advantage,
	}
}
