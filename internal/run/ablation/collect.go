package ablation

import (
	"context"
	"errors"
	"math"
	"slices"

	"temper/internal/blob"
	"temper/internal/evaluate"
	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/series"
)

// Result is what came out of an ablation: of the runs that are whole alone, so that each
// step of an arm is a mean over the same seeds.
type Result struct {
	ID    string      `json:"id"`
	Runs  []RunResult `json:"runs"`
	Arms  []ArmResult `json:"arms"`
	Seeds []uint64    `json:"seeds"`
}

// RunResult is one run with what it measured by step.
type RunResult struct {
	Planned
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Accuracy is the accuracy of greedy rollouts on the held-out problems at the end, as a
	// mean over stages. Before is the accuracy of the policy before RL. Either is nil if it
	// was not measured.
	Accuracy *float64 `json:"accuracy,omitempty"`
	Before   *float64 `json:"accuracy_before,omitempty"`
	// Series are by measure and step; NaN, written as text, where a step has none.
	Series map[string][]Value `json:"series,omitempty"`
}

// ArmResult is what the runs of an arm come to.
type ArmResult struct {
	Name string `json:"name"`
	// Runs is how many runs are whole, of Of.
	Runs int `json:"runs"`
	Of   int `json:"of"`
	// Series are by measure and step.
	Series map[string][]Band `json:"series"`
	// Table are the numbers of the table, by the names of Columns.
	Table map[string]Band `json:"table"`
	// Against are the differences from the first arm, as means over the seeds that both have.
	Against map[string]Band `json:"against,omitempty"`
}

// Band is a mean over seeds with its 95 % interval by Student's t.
type Band struct {
	N    int   `json:"n"` // seeds
	Mean Value `json:"mean"`
	Low  Value `json:"low"`
	High Value `json:"high"`
}

// Measure is a series that an ablation shows.
type Measure struct {
	// Name is the name of the series, Title its title for a person, Unit its unit.
	Name, Title, Unit string
	// least and most bound what it can be, and so its band.
	least, most float64
}

// Measures are the series that are shown, in their order.
func Measures() []Measure {
	return []Measure{
		{series.Reward, "accuracy of sampled trajectories", "share", 0, 1},
		{series.CorrectErrors, "tool errors in correct trajectories", "share of calls", 0, 1},
		{series.Response, "response length", "tokens", 0, math.Inf(1)},
	}
}

// Collect reads what the runs of an ablation have left. Runs that are not whole are named
// with their state and have no numbers.
func Collect(ctx context.Context, store blob.Store, id string) (Result, error) {
	plan, err := ReadPlan(ctx, store, id)
	if err != nil {
		return Result{}, err
	}
	planned := plan.Runs()
	runs := make([]RunResult, len(planned))
	err = artifact.Each(ctx, len(planned), func(ctx context.Context, i int) error {
		var err error
		runs[i], err = readRun(ctx, store, id, planned[i])
		return err
	})
	if err != nil {
		return Result{}, err
	}
	return summarize(plan, runs), nil
}

// readRun reads one run, whatever the workflow knows of it.
func readRun(ctx context.Context, store blob.Store, id string, p Planned) (RunResult, error) {
	out := RunResult{Planned: p}
	ended, ok, err := artifact.Lookup[Ended](ctx, store, artifact.Ablation{ID: id}.Ended(p.RunID))
	if err != nil {
		return out, err
	}
	if ok {
		out.State, out.Reason = ended.State, ended.Reason
	}
	have, err := Find(ctx, store, FindInput{ID: id, RunID: p.RunID})
	if fault.Of(err) != "" { // taken by another configuration: no number of it belongs here
		out.State, out.Reason = RunFailed, err.Error()
		return out, nil
	}
	switch {
	case err != nil:
		return out, err
	case have == StoredDone:
		out.State, out.Reason = RunDone, ""
		return out, out.measure(ctx, store)
	case out.State == RunDone || out.State == RunFound: // its folder is gone or damaged since
		out.State, out.Reason = RunFailed, "its end is not in the store any more"
	case out.State == "" && have == StoredBegun:
		out.State = RunGoing
	case out.State == "":
		out.State = RunWaiting
	}
	return out, nil
}

func (r *RunResult) measure(ctx context.Context, store blob.Store) error {
	h, err := history.Open(ctx, store, r.RunID)
	if err != nil {
		return err
	}
	summary, _, err := h.Summary(ctx)
	if err != nil {
		return err
	}
	r.Accuracy = overStages(summary.Stages, func(s run.StageSummary) *float64 { return s.AccuracyAfter })
	r.Before = overStages(summary.Stages, func(s run.StageSummary) *float64 { return s.AccuracyBefore })
	records, err := h.Records(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(records, func(a, b run.StepRecord) int { return a.Step - b.Step })
	r.Series = map[string][]Value{}
	for _, m := range Measures() {
		for _, rec := range records {
			x, ok := series.Known(rec.Metrics, m.Name)
			if !ok {
				x = math.NaN()
			}
			r.Series[m.Name] = append(r.Series[m.Name], Value(x))
		}
	}
	return nil
}

func overStages(stages []run.StageSummary, of func(run.StageSummary) *float64) *float64 {
	var sum float64
	for _, s := range stages {
		x := of(s)
		if x == nil {
			return nil
		}
		sum += *x
	}
	if len(stages) == 0 {
		return nil
	}
	mean := sum / float64(len(stages))
	return &mean
}

func summarize(plan Plan, runs []RunResult) Result {
	out := Result{ID: plan.ID, Runs: runs, Seeds: plan.Seeds}
	numbers := map[string]map[uint64]map[string]float64{} // by arm, seed and column
	for _, a := range plan.Arms {
		arm := ArmResult{Name: a.Name, Series: map[string][]Band{}, Table: map[string]Band{}}
		numbers[a.Name] = map[uint64]map[string]float64{}
		var whole []RunResult
		for _, r := range runs {
			if r.Arm != a.Name {
				continue
			}
			arm.Of++
			if r.State == RunDone || r.State == RunFound {
				whole = append(whole, r)
				numbers[a.Name][r.Seed] = r.columns()
			}
		}
		arm.Runs = len(whole)
		for _, m := range Measures() {
			arm.Series[m.Name] = bands(whole, m)
		}
		for _, c := range Columns() {
			var xs []float64
			for _, r := range whole {
				xs = append(xs, numbers[a.Name][r.Seed][c.Name])
			}
			arm.Table[c.Name] = band(xs, c.least, c.most)
		}
		if first := plan.Arms[0].Name; a.Name != first {
			arm.Against = against(numbers[first], numbers[a.Name])
		}
		out.Arms = append(out.Arms, arm)
	}
	return out
}

// bands returns the bands of a measure by step. Runs may differ in length where a stage
// ends by its figures: the mean of a step is over the runs that have it.
func bands(runs []RunResult, m Measure) []Band {
	longest := 0
	for _, r := range runs {
		longest = max(longest, len(r.Series[m.Name]))
	}
	out := make([]Band, longest)
	for step := range out {
		var xs []float64
		for _, r := range runs {
			if s := r.Series[m.Name]; step < len(s) {
				xs = append(xs, float64(s[step]))
			}
		}
		out[step] = band(xs, m.least, m.most)
	}
	return out
}

// against are the differences of two arms by column, over the seeds that both have.
func against(first, other map[uint64]map[string]float64) map[string]Band {
	out := map[string]Band{}
	for _, c := range Columns() {
		var ds []float64
		for seed, x := range other {
			if base, ok := first[seed]; ok {
				ds = append(ds, x[c.Name]-base[c.Name])
			}
		}
		out[c.Name] = band(ds, math.Inf(-1), math.Inf(1))
	}
	return out
}

// band is the mean of the numbers that are there, with its interval within bounds.
func band(xs []float64, least, most float64) Band {
	xs = slices.DeleteFunc(slices.Clone(xs), math.IsNaN)
	mean, half := evaluate.Student(xs)
	return Band{N: len(xs), Mean: Value(mean), Low: Value(max(least, mean-half)), High: Value(min(most, mean+half))}
}

// StoreResult collects the ablation and stores its figures: result.json, series.csv,
// table.md and figure.png.
func StoreResult(ctx context.Context, store blob.Store, id string) (Outcome, error) {
	result, err := Collect(ctx, store, id)
	if err != nil {
		return Outcome{}, err
	}
	files, err := result.Files()
	if err != nil {
		return Outcome{}, err
	}
	keys := artifact.Ablation{ID: id}
	var errs []error
	for _, f := range files {
		_, err := blob.PutBytes(ctx, store, keys.Result(f.Name), f.Data, blob.Always)
		errs = append(errs, err)
	}
	return result.outcome(store.Locate(keys.Dir())), errors.Join(errs...)
}

// Outcome is how an ablation ended.
type Outcome struct {
	ID    string `json:"id"`
	Place string `json:"place"`
	Whole int    `json:"whole"` // runs
	Of    int    `json:"of"`
	// Missing says of each run that is not whole why.
	Missing []string `json:"missing,omitempty"`
	// Stopped reports that a user stopped the ablation.
	Stopped bool `json:"stopped,omitempty"`
}

func (r Result) outcome(place string) Outcome {
	out := Outcome{ID: r.ID, Place: place, Of: len(r.Runs)}
	for _, x := range r.Runs {
		if x.State == RunDone || x.State == RunFound {
			out.Whole++
			continue
		}
		out.Missing = append(out.Missing, x.line())
	}
	return out
}

// line says of a run how it is.
func (r RunResult) line() string {
	if r.Reason == "" {
		return r.RunID + ": " + r.State
	}
	return r.RunID + ": " + r.State + ", " + r.Reason
}
