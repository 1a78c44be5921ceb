package main

import (
	"bytes"
	"context"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/run/runtest"
	"temper/tools/bench/schedulerbench"
)

func TestBenchScheduler(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "s.svg")
	small := []string{"scheduler", "--engines", "2", "--problems", "16", "--seeds", "1", "--ahead", "0"}
	var out, errs bytes.Buffer
	if code := execute(append(small, "--svg", svg, "--png", svg+".png"), &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	for _, word := range []string{"stage 1: bound", "stage 3: bound", "least requests", "oracle", "expected need takes"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("the table lacks %q:\n%s", word, out.String())
		}
	}
	if text, err := os.ReadFile(svg); err != nil || !bytes.HasPrefix(text, []byte("<svg")) {
		t.Errorf("the plot is %.20q, error %v", text, err)
	}
	picture, err := os.ReadFile(svg + ".png")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := png.Decode(bytes.NewReader(picture)); err != nil || p.Bounds().Dx() != 1600 {
		t.Errorf("the picture is not a PNG of 1600 pixels: %v", err)
	}
	out.Reset()
	if code := execute(append(small, "--json", "--policies", "oracle"), &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	var results []schedulerbench.Result
	if err := json.Unmarshal(out.Bytes(), &results); err != nil || len(results) != 2 {
		t.Errorf("%d results, error %v: want the oracle in two stages", len(results), err)
	}
}

func TestBenchSchedulerRefusesNonsense(t *testing.T) {
	for _, args := range [][]string{
		{"--engines", "0"}, {"--problems", "-1"}, {"--problems", "1000000", "--rollouts", "1000"}, {"--seeds", "0"}, {"--past", "-1"}, {"--ahead", "1"},
		{"--tool-seconds", "NaN"}, {"--margin", "NaN"}, {"--bandwidth", "0"}, {"--compute", "NaN"}, {"--overhead", "-1"}, {"--capacity", "0"}, {"--policies", "unknown"},
	} {
		var out, errs bytes.Buffer
		if code := execute(append([]string{"scheduler"}, args...), &out, &errs); code != 2 || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%q: exit %d, want 2 and one line: %s", args, code, errs.String())
		}
	}
}

// TestBenchSchedulerReplaysAStoredStep simulates the trajectories of a step of a run.
func TestBenchSchedulerReplaysAStoredStep(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 1, false)
	replay := func(step string) (code int, out, errs bytes.Buffer) {
		root := &cobra.Command{Use: "temper-bench"}
		root.AddCommand(schedulerCommand(func(context.Context, *config.Process) (blob.Store, error) { return h.Store, nil }))
		args := []string{"scheduler", "--run", h.Ref.RunID, "--step", step, "--engines", "1", "--capacity", "1000", "--json"}
		return cli.Execute(t.Context(), root, args, &out, &errs), out, errs
	}
	code, out, errs := replay("1")
	var results []schedulerbench.Result
	if err := json.Unmarshal(out.Bytes(), &results); code != 0 || err != nil {
		t.Fatalf("exit %d, error %v: %s", code, err, errs.String())
	}
	if len(results) != len(schedulerbench.Contenders())-1 {
		t.Errorf("%d results, want one for each policy that takes one step", len(results))
	}
	for _, r := range results {
		if r.Workload != "step 1 of "+h.Ref.RunID || r.Ratio < 1 || r.Ratio > 20 {
			t.Errorf("%+v", r)
		}
	}
	if got, want := results[0].Bound.Prefill, prefilled(t, h)/schedulerbench.MI300X().Compute*schedulerbench.MI300X().TokenOps; got < want*0.999 || got > want*1.001 {
		t.Errorf("the bound has %.9f s of prefill, the stored trajectories %.9f", got, want)
	}
	if code, _, errs := replay("9"); code == 0 || !strings.Contains(errs.String(), "step 9 of run") {
		t.Errorf("exit %d for a step that is not stored: %s", code, errs.String())
	}
}

// prefilled is the number of tokens of step 1 that nobody sampled.
func prefilled(t *testing.T, h *runtest.Run) float64 {
	t.Helper()
	run, err := history.Open(t.Context(), h.Store, h.Ref.RunID)
	if err != nil {
		t.Fatal(err)
	}
	n, seen := 0, 0
	problems, err := run.Problems(t.Context(), 1)
	for _, p := range problems {
		group, err := run.Group(t.Context(), 1, p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range group {
			seen++
			last := group[i].Turns[len(group[i].Turns)-1].End
			for j := range last {
				if !group[i].LossMask[j] {
					n++
				}
			}
		}
	}
	if err != nil || seen != 18 {
		t.Fatalf("%d trajectories, error %v, want 18", seen, err)
	}
	return float64(n)
}
