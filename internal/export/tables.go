package export

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"time"

	"temper/internal/dataset/rows"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/record"
)

// Point is one value of a series.
type Point struct {
	Run   string  `parquet:"run"`
	Step  int64   `parquet:"step"`
	Stage string  `parquet:"stage"`
	Ended string  `parquet:"ended"` // RFC 3339
	Key   string  `parquet:"key"`
	Value float64 `parquet:"value"`
}

// Call is one call of a tool. Times are in seconds, begin from the begin of its trajectory.
type Call struct {
	Run     string  `parquet:"run"`
	Step    int64   `parquet:"step"`
	Problem string  `parquet:"problem"`
	Rollout int64   `parquet:"rollout"`
	Turn    int64   `parquet:"turn"`
	Call    int64   `parquet:"call"`
	Begin   float64 `parquet:"begin_s"`
	Took    float64 `parquet:"took_s"`
	Queue   float64 `parquet:"queue_s"`
	Wall    float64 `parquet:"wall_s"`
	CPU     float64 `parquet:"cpu_s"`
	Memory  int64   `parquet:"peak_memory_bytes"`
	Stdout  int64   `parquet:"stdout_bytes"`
	Stderr  int64   `parquet:"stderr_bytes"`
}

// Evaluation is an evaluation of a policy.
type Evaluation struct {
	Run        string  `parquet:"run"`
	Stage      int64   `parquet:"stage"`
	Label      string  `parquet:"label"`
	Set        string  `parquet:"set"`
	Version    int64   `parquet:"policy_version"`
	Problems   int64   `parquet:"problems"`
	Accuracy   float64 `parquet:"accuracy"`
	Sampled    float64 `parquet:"sampled_accuracy"`
	ToolErrors float64 `parquet:"tool_error_rate"`
	MeanTokens float64 `parquet:"mean_tokens"`
	MeanTurns  float64 `parquet:"mean_turns"`
	Seconds    float64 `parquet:"wall_s"`
}

// Event is something that happened to a run.
type Event struct {
	Run  string `parquet:"run"`
	Time string `parquet:"time"` // RFC 3339
	Kind string `parquet:"kind"`
	Text string `parquet:"text"`
}

// Tables writes what a run has left as Parquet into a folder, a file for each table:
// trajectories, calls, series, evaluations and events. Steps bound the first two. A run that
// is exported again replaces its files. It returns the names of the files.
func Tables(ctx context.Context, r *history.Run, first, last int, folder string) ([]string, error) {
	var names []string
	for _, t := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"trajectories", func(w io.Writer) error { _, err := Rollouts(ctx, r, first, last, w); return err }},
		{"calls", func(w io.Writer) error { return rows.WriteParquet(w, calls(ctx, r, first, last)) }},
		{"series", func(w io.Writer) error { return rows.WriteParquet(w, points(ctx, r)) }},
		{"evaluations", func(w io.Writer) error { return rows.WriteParquet(w, evaluations(ctx, r)) }},
		{"events", func(w io.Writer) error { return rows.WriteParquet(w, events(ctx, r)) }},
	} {
		name := filepath.Join(folder, t.name+".parquet")
		if err := ReplaceFile(name, t.write); err != nil {
			return names, fmt.Errorf("%s: %w", name, err)
		}
		names = append(names, name)
	}
	return names, nil
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// collected yields the rows of a list that is read at once.
func collected[S, T any](list []S, err error, row func(S) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if err != nil {
			yield(none, err)
			return
		}
		for _, s := range list {
			if !yield(row(s), nil) {
				return
			}
		}
	}
}

func points(ctx context.Context, r *history.Run) iter.Seq2[Point, error] {
	return func(yield func(Point, error) bool) {
		records, err := r.Records(ctx)
		if err != nil {
			yield(Point{}, err)
			return
		}
		for _, rec := range records {
			for _, key := range slices.Sorted(maps.Keys(rec.Metrics.Known())) {
				value := rec.Metrics[key]
				if math.IsNaN(value) {
					continue
				}
				if !yield(Point{r.ID(), int64(rec.Step), rec.StageName, stamp(rec.Ended), key, value}, nil) {
					return
				}
			}
		}
	}
}

func calls(ctx context.Context, r *history.Run, first, last int) iter.Seq2[Call, error] {
	return func(yield func(Call, error) bool) {
		e, err := r.Entry(ctx)
		if err != nil {
			yield(Call{}, err)
			return
		}
		for step := max(1, first); step <= min(last, e.Step); step++ {
			list, err := history.RolloutsOf(r).Times(ctx, step)
			if err != nil {
				yield(Call{}, err)
				return
			}
			for _, t := range record.JoinAll(list) {
				for _, c := range callsOf(r.ID(), step, t) {
					if !yield(c, nil) {
						return
					}
				}
			}
		}
	}
}

// callsOf returns the calls of a trajectory in order.
func callsOf(runID string, step int, t record.Times) []Call {
	var out []Call
	for i, turn := range t.Turns {
		for k, c := range turn.Calls {
			out = append(out, Call{
				runID, int64(step), t.Problem, int64(t.Rollout), int64(i), int64(k), seconds(c.Begin), seconds(c.Took), seconds(c.Queue), seconds(c.Wall), seconds(c.CPU),
				c.PeakMemory, int64(c.StdoutBytes), int64(c.StderrBytes),
			})
		}
	}
	return out
}

// seconds converts microseconds.
func seconds(micros int64) float64 { return float64(micros) / 1e6 }

func evaluations(ctx context.Context, r *history.Run) iter.Seq2[Evaluation, error] {
	list, err := r.Evaluations(ctx)
	return collected(list, err, func(e run.Evaluation) Evaluation {
		return Evaluation{
			r.ID(), int64(e.Stage), e.Label, e.Set, e.PolicyVersion, int64(e.NumProblems), e.Accuracy, e.SampledAccuracy, e.ToolErrorRate, e.MeanTokens, e.MeanTurns, e.Wall.Seconds(),
		}
	})
}

func events(ctx context.Context, r *history.Run) iter.Seq2[Event, error] {
	list, err := r.Events(ctx)
	return collected(list, err, func(e run.Event) Event { return Event{r.ID(), stamp(e.Time), e.Kind, e.Plain()} })
}
