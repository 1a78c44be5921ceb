package query

import (
	"errors"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"temper/internal/blob"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/record"
	"temper/internal/series"
)

// tables are those of the queries.
func tables() []table {
	return []table{
		{"runs", "all runs of the store", []Column{
			{runColumn, text, "id of the run"}, {"name", text, "first part of generated ids"}, {"state", text, "what became of it"}, {"reason", text, "why it stands or failed"},
			{"stage", text, "newest stage"}, {stepColumn, integer, "newest step with a record"}, {"num_steps", integer, "steps of its plan"},
			{"reward", float, "mean reward of the newest step"}, {"seed", text, "seed"}, {"parent", text, "run that it is a fork of"},
			{"parent_step", integer, "step of the parent"}, {"started", text, "time, UTC"}, {"updated", text, "time of the newest entry, UTC"},
		}, runRows},
		{"stages", "stages of runs", []Column{
			{runColumn, text, "id of the run"}, {"stage", text, "name"}, {"place", integer, "from 1"}, {"first_step", integer, "its first step"}, {"steps", integer, "its steps in the plan"},
			{"accuracy_before", float, "held-out accuracy before RL, of a run that ended"}, {"accuracy_after", float, "the same at the end"},
		}, stageRows},
		{"steps", "one row a step", []Column{
			{runColumn, text, "id of the run"}, {stepColumn, integer, "step"}, {"stage", text, "name of its stage"}, {"started", text, "time, UTC"}, {"ended", text, "time, UTC"},
			{"reward", float, series.Reward}, {"tool_errors", float, series.ToolErrors}, {"response_tokens", float, series.Response}, {"turns", float, series.Turns},
			{"groups", float, series.Groups}, {"groups_dropped", float, series.GroupsDropped}, {"entropy", float, series.Entropy}, {"grad_norm", float, series.GradNorm},
			{"tokens_per_s", float, series.Throughput}, {"seconds", float, series.StepSeconds},
		}, stepRows},
		{"series", "one row for each number of each step", []Column{
			{runColumn, text, "id of the run"}, {stepColumn, integer, "step"}, {"key", text, "name of the series"}, {"value", float, "number; NULL where it is NaN"},
		}, seriesRows},
		{"trajectories", "one row a trajectory, from the indexes of the steps", []Column{
			{runColumn, text, "id of the run"}, {stepColumn, integer, "step"}, {"problem", text, "id"}, {"rollout", integer, "place in its group"}, {"reward", float, "reward"},
			{"fate", text, "kept, dropped, uniform or excluded"}, {"advantage", float, "of a kept one"}, {"p_err", float, "penalty for failed calls"},
			{"p_format", float, "penalty for answer tags"}, {"weight", float, "by which it is drawn"}, {"turns", integer, "turns"}, {"calls", integer, "tool calls"},
			{"failed_calls", integer, "tool calls that failed"}, {"prompt_tokens", integer, "tokens"}, {"response_tokens", integer, "tokens"}, {"stop_reason", text, "why it ended"},
			{"answer", text, "its first 200 bytes"}, {"answer_tags", integer, "answers in the response"}, {"mean_logprob", float, "nats, over sampled tokens"},
			{"mean_entropy", float, "nats, over sampled tokens, where the trainer has recorded it"},
		}, trajectoryRows},
		{"calls", "one row a tool call whose times are recorded", []Column{
			{runColumn, text, "id of the run"}, {stepColumn, integer, "step"}, {"problem", text, "id"}, {"rollout", integer, "place in its group"}, {"turn", integer, "from 0"}, {"call", integer, "from 0"},
			{"begin_s", float, "since the trajectory began"}, {"took_s", float, "what the trajectory waited"}, {"queue_s", float, "wait for an executor"}, {"wall_s", float, "of the program"},
			{"cpu_s", float, "of the program"}, {"peak_memory_bytes", integer, "of the program"}, {"stdout_bytes", integer, "that it printed"}, {"stderr_bytes", integer, "that it printed"},
		}, callRows},
		{"evals", "evaluations", []Column{
			{runColumn, text, "id of the run"}, {"stage", integer, "from 1; 0 of an evaluation set"}, {"label", text, "before, after, final or the step"}, {"eval_set", text, "evaluation set"},
			{"policy", integer, "version"}, {"problems", integer, "problems"}, {"accuracy", float, "decoded greedily"}, {"sampled_accuracy", float, "sampled"},
			{"tool_error_rate", float, "sampled"}, {"mean_tokens", float, "tokens of a response"}, {"mean_turns", float, "turns"}, {"seconds", float, "what it took"},
		}, evalRows},
		{"events", "event logs", []Column{
			{runColumn, text, "id of the run"}, {"time", text, "UTC"}, {"kind", text, "one word"}, {"text", text, "what happened"},
		}, eventRows},
		{"checkpoints", "checkpoints that are stored", []Column{
			{runColumn, text, "id of the run"}, {stepColumn, integer, "step of RL"}, {"cursor", integer, "all updates"}, {"bytes", integer, "size"}, {"kept", text, "why it stays"}, {"damage", text, "what is wrong with it"},
		}, checkpointRows},
	}
}

type rows = iter.Seq2[[]any, error]

// perRun reads each run that is wanted. One that is damaged has no rows, and hides none of
// the others unless it is asked for by name.
func perRun(s *source, w wanted, of func(r *history.Run, yield func([]any, error) bool) error) rows {
	return func(yield func([]any, error) bool) {
		ids, err := s.wantedRuns(w)
		for _, id := range ids {
			if err != nil {
				break
			}
			if ok, there := history.Exists(s.ctx, s.store, id); there == nil && !ok {
				continue
			}
			var stopped bool
			if stopped, err = s.readRun(id, yield, of); stopped {
				return
			}
			if w.run == "" && s.ctx.Err() == nil && !errors.Is(err, blob.ErrUnavailable) {
				err = nil
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// wantedRuns are the ids of the runs that are wanted: none where no run can have the id.
func (s *source) wantedRuns(w wanted) ([]string, error) {
	switch {
	case w.run == "":
		return history.RunIDs(s.ctx, s.store)
	case history.CheckRunID(w.run) != nil:
		return nil, nil
	}
	return []string{w.run}, nil
}

// readRun yields the rows of one run until it is told to stop.
func (s *source) readRun(id string, yield func([]any, error) bool, of func(r *history.Run, yield func([]any, error) bool) error) (stopped bool, err error) {
	r, err := history.Open(s.ctx, s.store, id)
	if err != nil {
		return false, err
	}
	err = of(r, func(row []any, err error) bool {
		stopped = stopped || !yield(row, err)
		return !stopped
	})
	return stopped, err
}

func number(v *float64) any {
	if v == nil {
		return nil
	}
	return realCell(*v)
}

// realCell is a number as a cell holds it: NULL for NaN, which SQL cannot compare, as SQLite has it.
func realCell(v float64) any {
	if math.IsNaN(v) {
		return nil
	}
	return v
}

func moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func runRows(s *source, w wanted) rows {
	return func(yield func([]any, error) bool) {
		list, err := history.List(s.ctx, s.store)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, e := range list {
			if w.run != "" && e.RunID != w.run {
				continue
			}
			var parent, at any
			if e.Fork != nil {
				parent, at = e.Fork.RunID, int64(e.Fork.Step)
			}
			if !yield([]any{
				e.RunID, e.Name, e.State, orNull(e.Reason), orNull(e.Stage), int64(e.Step), int64(e.NumSteps), number(e.Reward), strconv.FormatUint(e.Seed, 10), parent, at,
				moment(e.Started), moment(e.Updated),
			}, nil) {
				return
			}
		}
	}
}

func stageRows(s *source, w wanted) rows {
	return perRun(s, w, func(r *history.Run, yield func([]any, error) bool) error {
		summary, _, err := r.Summary(s.ctx)
		if err != nil {
			return err
		}
		for i, st := range r.Plan.Stages {
			var before, after any
			if i < len(summary.Stages) {
				before, after = number(summary.Stages[i].AccuracyBefore), number(summary.Stages[i].AccuracyAfter)
			}
			if !yield([]any{r.ID(), st.Name, int64(st.Index), int64(st.FirstStep), int64(st.Steps), before, after}, nil) {
				return nil
			}
		}
		return nil
	})
}

// records are those of the steps that are wanted: one where one is asked for.
func records(s *source, r *history.Run, w wanted) ([]run.StepRecord, error) {
	if w.from == w.to {
		rec, ok, err := history.RolloutsOf(r).Record(s.ctx, int(w.from))
		if err != nil || !ok {
			return nil, err
		}
		return []run.StepRecord{rec}, nil
	}
	all, err := r.Records(s.ctx)
	return slices.DeleteFunc(all, func(rec run.StepRecord) bool { return !w.hasStep(rec.Step) }), err
}

func stepRows(s *source, w wanted) rows {
	return perRun(s, w, func(r *history.Run, yield func([]any, error) bool) error {
		all, err := records(s, r, w)
		for _, rec := range all {
			row := []any{r.ID(), int64(rec.Step), rec.StageName, moment(rec.Started), moment(rec.Ended)}
			for _, key := range []string{
				series.Reward, series.ToolErrors, series.Response, series.Turns, series.Groups, series.GroupsDropped, series.Entropy, series.GradNorm, series.Throughput, series.StepSeconds,
			} {
				row = append(row, seriesCell(rec, key))
			}
			if !yield(row, nil) {
				return nil
			}
		}
		return err
	})
}

func seriesCell(rec run.StepRecord, key string) any {
	v, ok := rec.Metrics[key]
	if !ok {
		return nil
	}
	return realCell(v)
}

func seriesRows(s *source, w wanted) rows {
	return perRun(s, w, func(r *history.Run, yield func([]any, error) bool) error {
		all, err := records(s, r, w)
		for _, rec := range all {
			known := rec.Metrics.Known()
			for _, key := range sortedKeys(known) {
				if !yield([]any{r.ID(), int64(rec.Step), key, realCell(known[key])}, nil) {
					return nil
				}
			}
		}
		return err
	})
}

func sortedKeys(v series.Values) []string {
	keys := make([]string, 0, len(v))
	for key := range v {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// perStep reads the steps that are wanted, up to the newest.
func perStep(s *source, w wanted, of func(r *history.Run, step int, yield func([]any, error) bool) error) rows {
	return perRun(s, w, func(r *history.Run, yield func([]any, error) bool) error {
		newest := int64(r.Plan.NumSteps())
		if w.from != w.to {
			e, err := r.Entry(s.ctx)
			if err != nil {
				return err
			}
			newest = int64(e.Step) + 1 // of the step under way the batch may be there
		}
		more := true
		for step := max(1, w.from); step <= min(newest, w.to) && more; step++ {
			err := of(r, int(step), func(row []any, err error) bool {
				more = more && yield(row, err)
				return more
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func trajectoryRows(s *source, w wanted) rows {
	return perStep(s, w, func(r *history.Run, step int, yield func([]any, error) bool) error {
		list, _, err := history.RolloutsOf(r).Index(s.ctx, step)
		if errors.Is(err, blob.ErrCorrupt) && w.from != w.to {
			return nil // the other steps are whole
		}
		for _, t := range list {
			if !yield([]any{
				r.ID(), int64(step), t.Problem, int64(t.Rollout), realCell(t.Reward), orNull(t.Fate), number(t.Advantage), number(t.PErr), number(t.PFormat), number(t.Weight),
				int64(t.Turns), int64(t.Calls), int64(t.FailedCalls), int64(t.PromptTokens), int64(t.ResponseTokens), t.StopReason, t.Answer, int64(t.AnswerTags), number(t.MeanLogprob), number(t.MeanEntropy),
			}, nil) {
				return nil
			}
		}
		return err
	})
}

func callRows(s *source, w wanted) rows {
	return perStep(s, w, func(r *history.Run, step int, yield func([]any, error) bool) error {
		list, err := history.RolloutsOf(r).Times(s.ctx, step)
		if err != nil {
			return err
		}
		for _, t := range record.JoinAll(list) {
			for i, turn := range t.Turns {
				for k, c := range turn.Calls {
					if !yield([]any{
						r.ID(), int64(step), t.Problem, int64(t.Rollout), int64(i), int64(k), seconds(c.Begin), seconds(c.Took), seconds(c.Queue), seconds(c.Wall), seconds(c.CPU),
						c.PeakMemory, int64(c.StdoutBytes), int64(c.StderrBytes),
					}, nil) {
						return nil
					}
				}
			}
		}
		return nil
	})
}

func seconds(micros int64) float64 { return float64(micros) / 1e6 }

func evalRows(s *source, w wanted) rows {
	return perRun(s, w, func(r *history.Run, yield func([]any, error) bool) error {
		list, err := r.Evaluations(s.ctx)
		for _, e := range list {
			if !yield([]any{
				r.ID(), int64(e.Stage), e.Label, orNull(e.Set), e.PolicyVersion, int64(e.NumProblems), realCell(e.Accuracy), realCell(e.SampledAccuracy), realCell(e.ToolErrorRate),
				realCell(e.MeanTokens), realCell(e.MeanTurns), e.Wall.Seconds(),
			}, nil) {
				return nil
			}
		}
		return err
	})
}

func eventRows(s *source, w wanted) rows {
	return perRun(s, w, func(r *history.Run, yield func([]any, error) bool) error {
		list, err := r.Events(s.ctx)
		for _, e := range list {
			if !yield([]any{r.ID(), moment(e.Time), e.Kind, e.Plain()}, nil) {
				return nil
			}
		}
		return err
	})
}

func checkpointRows(s *source, w wanted) rows {
	return perRun(s, w, func(r *history.Run, yield func([]any, error) bool) error {
		list, err := r.Checkpoints(s.ctx)
		for _, c := range list {
			if !yield([]any{r.ID(), int64(c.Step), int64(c.Cursor), c.Bytes, c.Kept, orNull(c.Damage)}, nil) {
				return nil
			}
		}
		return err
	})
}
