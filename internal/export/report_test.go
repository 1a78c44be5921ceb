package export_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/export"
	"temper/internal/run"
	"temper/internal/series"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, string(want)); diff != "" {
		t.Errorf("%s: got -, want +\n%s", path, diff)
	}
}

func record(step int, seconds float64) run.StepRecord {
	return run.StepRecord{
		Step: step, Stage: 1, StageName: "hops-1", NumSteps: 120,
		Metrics: map[string]float64{
			series.Reward: 0.456, series.ToolErrors: 0.0789, series.CorrectErrors: 0.1 / float64(step),
			series.Response: 41.26, series.Groups: 8, series.GroupsDropped: 3,
			series.Throughput: 9876, series.StepSeconds: seconds,
		},
	}
}

func TestStepLine(t *testing.T) {
	lines := export.StepLine(record(7, 2.345), 92*time.Second) + "\n" + export.StepLine(record(119, 61.5), time.Second) + "\n"
	golden(t, "steps.golden", lines)
}

// TestStepTime: what was waited for and what was busy are two tables, and several workers
// have a line each. A record without times of machines has the first one.
func TestStepTime(t *testing.T) {
	r := record(7, 4)
	var out strings.Builder
	if err := export.StepTime(&out, r); err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Metrics, series.Values{
		series.GenSeconds: 2, series.ToolSeconds: 1, series.TrainSeconds: 0.5, series.OtherSeconds: 0.5,
		series.EngineCPU: 2.5, series.SandboxCPU: 1.25, series.TrainerCPU: 0.75, series.RestCPU: 0.25, series.IdleCPU: 2.25,
		series.EnginePasses: 321, series.BusyRows: 17.25, series.BusyRowsP10: 3,
	})
	s := time.Second
	for _, name := range []string{"a/1", "a/22"} {
		r.Busy = append(r.Busy, series.Busy{Worker: name, Cores: 2, Wall: 3 * s, Process: s, Programs: s, Sandbox: 2 * s, Machine: 4 * s, Idle: 2 * s})
	}
	if err := export.StepTime(&out, r); err != nil {
		t.Fatal(err)
	}
	golden(t, "steptime.golden", out.String())
}

// TestETA: the mean of the last ten steps for each one to come.
func TestETA(t *testing.T) {
	var records []run.StepRecord
	if got := export.ETA(records); got != 0 {
		t.Errorf("%s before the first step", got)
	}
	for n := 1; n <= 20; n++ {
		records = append(records, record(n, map[bool]float64{true: 100, false: 2}[n <= 10]))
	}
	if got, want := export.ETA(records), 200*time.Second; got != want {
		t.Errorf("%s left, want %s for 100 steps of 2 s", got, want)
	}
	if got := export.ETA([]run.StepRecord{record(120, 9)}); got != 0 {
		t.Errorf("%s left after the last step", got)
	}
}

// stopped is a run whose second stage was never measured at its end.
func stopped() run.Summary {
	number := func(v float64) *float64 { return &v }
	return run.Summary{
		RunID: "demo", Seed: 3, WallSeconds: 275.4, PeakRSSBytes: 3 << 30, Steps: 22,
		Stages: []run.StageSummary{
			{
				Name: "hops-1", Steps: 20, AccuracyBefore: number(0), AccuracyStageEnd: number(0.95), AccuracyAfter: number(0.9375),
				ToolErrorRateBefore: number(0.253), ToolErrorRateStageEnd: number(0.021), ToolErrorRateAfter: number(0.0125),
				MeanTokens: number(31.04), MeanTokensBefore: number(52.5), MeanTurns: number(2), MeanTurnsBefore: number(2.31),
			},
			{
				Name: "hops-2", Steps: 25, AccuracyBefore: number(0), ToolErrorRateBefore: number(0.25),
				MeanTokensBefore: number(60), MeanTurnsBefore: number(2.5), ProblemsFiltered: 20, ProblemsTotal: 256,
			},
		},
		TimeSplit:              run.TimeSplit{Sample: 150.25, Tool: 12.5, Train: 100, Other: 12.65},
		OrchestrationMSPerStep: 48.6, OrchestrationShare: 0.0231, Stopped: true,
	}
}

func TestSummary(t *testing.T) {
	var b strings.Builder
	links := export.Links{RunDir: "/runs/demo", SummaryPath: "/runs/demo/summary.json", WebUI: "http://localhost/demo"}
	if err := export.Summary(&b, stopped(), links); err != nil {
		t.Fatal(err)
	}
	golden(t, "summary.golden", b.String())
	b.Reset()
	whole := stopped()
	whole.Stopped = false
	if err := export.Summary(&b, whole, export.Links{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "stopped") || strings.Contains(b.String(), "web UI") {
		t.Errorf("tells what is not so:\n%s", b.String())
	}
}

func TestCompare(t *testing.T) {
	runs := []export.Compared{{RunID: "paper", Label: "RoC paper, seed 3", Summary: stopped()}}
	for n := 1; n <= 12; n++ {
		runs[0].Records = append(runs[0].Records, record(n, 2))
	}
	runs = append(runs, export.Compared{RunID: "off", Label: "RoC off, seed 3"})
	var b strings.Builder
	if err := export.Compare(&b, runs); err != nil {
		t.Fatal(err)
	}
	golden(t, "compare.golden", b.String())
	b.Reset()
	if err := export.CSV(&b, runs); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 13 || !strings.HasPrefix(lines[0], "run,settings,stage,step,critic/rewards/mean,") || !strings.HasPrefix(lines[1], `paper,"RoC paper, seed 3",hops-1,1,0.456,`) {
		t.Errorf("%d lines of CSV:\n%s", len(lines), b.String())
	}
}

// TestCompareLeavesOut: a step without a correct trajectory says nothing of the calls of
// correct ones, in the means and in the CSV.
func TestCompareLeavesOut(t *testing.T) {
	r := export.Compared{RunID: "few", Label: "-"}
	for n := 1; n <= 10; n++ {
		rec := record(n, 2)
		rec.Metrics[series.Reward], rec.Metrics[series.CorrectErrors], rec.Metrics[series.ToolErrors] = 0, 0, 0.25
		if n > 8 {
			rec.Metrics[series.Reward], rec.Metrics[series.CorrectErrors] = 0.1, 0.5
		}
		r.Records = append(r.Records, rec)
	}
	none := export.Compared{RunID: "none", Label: "-", Records: r.Records[:8]}
	var b strings.Builder
	if err := export.Compare(&b, []export.Compared{r, none}); err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]string{1: "few - 0.500 - 0.500 0.250 0", 2: "none - - - - 0.250 0"} {
		if got := strings.Join(strings.Fields(strings.Split(b.String(), "\n")[i]), " "); got != want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
	b.Reset()
	if err := export.CSV(&b, []export.Compared{r}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if !strings.HasPrefix(lines[8], "few,-,hops-1,8,0,0.25,,") || !strings.HasPrefix(lines[9], "few,-,hops-1,9,0.1,0.25,0.5,") {
		t.Errorf("steps 8 and 9 are %q and %q", lines[8], lines[9])
	}
}

func TestUnits(t *testing.T) {
	got := []string{
		export.Count(843), export.Count(9876), export.Count(1234567), export.Duration(92400 * time.Millisecond),
		export.Size(12), export.Size(5 << 20), export.Size(3 << 29), export.Number(nil, 2),
	}
	want := []string{"843", "9.9k", "1.2M", "1m32s", "12 B", "5 MiB", "1.50 GiB", ""}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}
