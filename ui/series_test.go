package ui

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"slices"
	"testing"

	"temper/internal/export"
	"temper/internal/run"
	"temper/internal/series"
)

// TestSeriesAreEncodedAsJSON: the short way gives what encoding/json gives.
func TestSeriesAreEncodedAsJSON(t *testing.T) {
	n := func(x float64) *Number { v := Number(x); return &v }
	for name, v := range map[string]SeriesView{
		"empty": {Values: map[string][]*Number{}, Steps: []int{}, Stages: []string{}, Wall: []float64{}, Tokens: []float64{}},
		"all": {
			Steps: []int{1, 2, 3}, Stages: []string{`a"<b`, `"values":null`, "c"}, Wall: []float64{0, 1.5, 1e21}, Tokens: []float64{1, 2, 3}, Thinned: true,
			Values: map[string][]*Number{"b": {n(1), nil, n(math.NaN())}, "a/<x>": {n(math.Inf(1)), n(-0.1), n(1e-9)}, "none": {}},
		},
	} {
		type plain SeriesView
		want, err := json.Marshal(plain(v))
		if err != nil {
			t.Fatal(err)
		}
		if got := v.encoded(); string(got) != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	if got := (SeriesView{Wall: []float64{math.NaN()}}).encoded(); got != nil {
		t.Errorf("a time that is none is %s", got)
	}
}

// TestSeriesThatAStepHasNot: where no trajectory was correct, the curve of errors in correct ones
// has a gap, and no 0.
func TestSeriesThatAStepHasNot(t *testing.T) {
	var records []run.StepRecord
	for i, reward := range []float64{0.5, 0, 0.25} {
		records = append(records, run.StepRecord{Step: i + 1, StageName: "one", Metrics: series.Values{series.Reward: reward, series.CorrectErrors: reward / 5, series.ToolErrors: 0}})
	}
	values := seriesOf(records, nil).Values
	if c := values[series.CorrectErrors]; len(c) != 3 || c[0] == nil || *c[0] != 0.1 || c[1] != nil || c[2] == nil {
		t.Errorf("errors in correct ones are %v", c)
	}
	if c := values[series.ToolErrors]; len(c) != 3 || c[1] == nil {
		t.Errorf("errors are %v", c)
	}
	text, err := export.SeriesCSV(records)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if at := slices.Index(rows[0], series.CorrectErrors); rows[1][at] != "0.1" || rows[2][at] != "" || rows[3][at] != "0.05" {
		t.Errorf("CSV: %q", rows)
	}
	if n := bytes.Count(export.TensorBoard(records), []byte(series.CorrectErrors)); n != 2 {
		t.Errorf("%d events of errors in correct ones, want 2", n)
	}
}

// TestThinnedSeriesShowEverySpike: of many steps each extreme is left, with the newest step and
// the first one of each stage as they are.
func TestThinnedSeriesShowEverySpike(t *testing.T) {
	const steps, points, second = 5003, 100, 3001
	for spike := 1; spike <= steps; spike += 97 {
		v := SeriesView{Values: map[string][]*Number{}}
		for step := 1; step <= steps; step++ {
			x, stage := Number(0.5), "one"
			switch step {
			case spike:
				x = 9
			case spike + 1:
				x = -9
			case steps:
				x = 0.25
			case second:
				x = 0.125
			}
			if step >= second {
				stage = "two"
			}
			v.Steps, v.Stages = append(v.Steps, step), append(v.Stages, stage)
			v.Wall, v.Tokens = append(v.Wall, float64(step)), append(v.Tokens, float64(step))
			v.Values["x"] = append(v.Values["x"], &x)
			v.Values["none"] = append(v.Values["none"], nil)
		}
		got := v.thin(points)
		n := len(got.Steps)
		if !got.Thinned || n > points+10 || len(got.Values["x"]) != n || len(got.Values["none"]) != n || len(got.Stages) != n || len(got.Wall) != n || len(got.Tokens) != n || !slices.IsSorted(got.Steps) {
			t.Fatalf("%d points of %d values, %d stages", n, len(got.Values["x"]), len(got.Stages))
		}
		at := map[int]Number{}
		near := map[Number]int{} // how far a spike is from its step
		for i, x := range got.Values["x"] {
			at[got.Steps[i]] = *x
			near[*x] = max(got.Steps[i], spike) - min(got.Steps[i], spike)
		}
		for _, x := range []Number{9, -9} {
			if away, ok := near[x]; (!ok || away > 2*steps/points) && spike < steps {
				t.Errorf("the spike %v at step %d is there %v, %d steps away", x, spike, ok, away)
			}
		}
		if spike < steps && (at[steps] != 0.25 && spike+1 != steps || at[second] != 0.125 && spike != second && spike+1 != second) {
			t.Errorf("step %d is %v, step %d is %v", steps, at[steps], second, at[second])
		}
	}
}
