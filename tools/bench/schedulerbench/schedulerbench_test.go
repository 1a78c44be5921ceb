package schedulerbench_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/inference/scheduler"
	"temper/tools/bench/schedulerbench"
)

// small is a step of four engines that are as full as those of the whole fleet.
func small(t *testing.T) (schedulerbench.Plan, []schedulerbench.Workload) {
	t.Helper()
	workloads := schedulerbench.Stages()
	for i := range workloads {
		workloads[i].Problems = 32
	}
	return schedulerbench.Plan{
		Hardware: schedulerbench.MI300X(), Engines: 4, Seeds: 1, Config: scheduler.DefaultConfig(), Contenders: schedulerbench.Contenders(), Past: 1, Ahead: 3,
	}, workloads
}

func TestPoliciesStandInTheirOrder(t *testing.T) {
	plan, workloads := small(t)
	results, err := plan.CompareAll(workloads[1:])
	if err != nil {
		t.Fatal(err)
	}
	ratio := map[string]schedulerbench.Result{}
	for _, r := range results {
		ratio[r.Contender] = r
		if r.Ratio < 1 {
			t.Errorf("%s takes %.3f of the bound", r.Contender, r.Ratio)
		}
	}
	expected := ratio["expected need"]
	if expected.Preempted > 0.005 || expected.Recomputed > 0.03 {
		t.Errorf("expected need preempts %.4f and makes %.4f again", expected.Preempted, expected.Recomputed)
	}
	for name, factor := range map[string]float64{"oracle": 0.85, "worst case, coefficient 1": 1.1, "least requests": 1.1, "static split": 1.2, "static split, tools in lockstep": 1.5} {
		if r := ratio[name]; r.Seconds < factor*expected.Seconds {
			t.Errorf("%s takes %.0f s, want at least %.2f of expected need, %.0f s", name, r.Seconds, factor, expected.Seconds)
		}
	}
	again, err := plan.CompareAll(workloads[1:])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(results, again); diff != "" {
		t.Errorf("equal seeds gave other tables:\n%s", diff)
	}
	checkPlot(t, results)
}

func checkPlot(t *testing.T, results []schedulerbench.Result) {
	t.Helper()
	svg := string(schedulerbench.Plot(results))
	dec := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	table := schedulerbench.Table(results)
	for _, r := range results {
		if !strings.Contains(svg, r.Contender) || !strings.Contains(table, r.Contender) {
			t.Errorf("%q is not shown", r.Contender)
		}
	}
}

func TestWorkloadIsWhatItSays(t *testing.T) {
	for _, w := range schedulerbench.Stages() {
		rollouts := w.Draw(3, 1, 0)
		sum, calls := 0, 0
		for i := range rollouts {
			r := &rollouts[i]
			sum += r.Length()
			calls += len(r.Tools)
			if r.Length() < w.Shortest || r.Length() > w.Limit || len(r.Tools) > w.MaxCalls || len(r.Turns) != len(r.Tools)+1 {
				t.Fatalf("%s: %+v", w.Name, r)
			}
			for _, n := range r.Turns {
				if n < 1 {
					t.Fatalf("%s: a turn of %d tokens: %+v", w.Name, n, r)
				}
			}
		}
		if mean := float64(sum) / float64(len(rollouts)); math.Abs(mean/w.Mean-1) > 0.01 {
			t.Errorf("%s: the mean length is %.0f, want %.0f", w.Name, mean, w.Mean)
		}
		if n := float64(calls) / float64(len(rollouts)); math.Abs(n/w.Calls-1) > 0.1 {
			t.Errorf("%s: %.2f calls each, want %.2f", w.Name, n, w.Calls)
		}
		if diff := cmp.Diff(rollouts, w.Draw(3, 1, 0)); diff != "" {
			t.Errorf("%s: equal seeds drew other rollouts", w.Name)
		}
	}
}

// TestOneTrajectoryTakesWhatTheRooflineSays computes a rollout by hand.
func TestOneTrajectoryTakesWhatTheRooflineSays(t *testing.T) {
	h := schedulerbench.Hardware{Bandwidth: 100, Compute: 10, Weights: 200, KVBytes: 1, TokenOps: 1, Overhead: 0.5, Capacity: 1000}
	r := schedulerbench.Rollout{ID: "a", Problem: "p", Prompt: 10, Limit: 100, Turns: []int{3, 2}, Tools: []schedulerbench.Call{{Seconds: 7, Tokens: 5}}}
	cfg := scheduler.DefaultConfig()
	cfg.Policy = scheduler.LeastRequests
	o, err := schedulerbench.Simulate(schedulerbench.Setting{Hardware: h, Engines: 1, Config: cfg}, [][]schedulerbench.Rollout{{r}})
	if err != nil {
		t.Fatal(err)
	}
	// Prefill 10/10 s; passes of 2.5 s that read 10, 11 and 12 tokens; the tool; prefill
	// 5/10 s; passes that read 18 and 19.
	want := 1 + 3*2.5 + 0.33 + 7 + 0.5 + 2*2.5 + 0.37
	if math.Abs(o.Seconds-want) > 1e-6 {
		t.Errorf("it takes %.6f s, want %.6f", o.Seconds, want)
	}
	if o.Recomputed != 0 || o.Prefilled != 15 || o.Sampled != 5 {
		t.Errorf("%d recomputed, %d prefilled, %d sampled; want 0, 15 and 5", o.Recomputed, o.Prefilled, o.Sampled)
	}
}

func TestBadHardware(t *testing.T) {
	for _, change := range []func(*schedulerbench.Hardware){
		func(h *schedulerbench.Hardware) { h.Bandwidth = 0 }, func(h *schedulerbench.Hardware) { h.Compute = math.NaN() },
		func(h *schedulerbench.Hardware) { h.Capacity = 0 }, func(h *schedulerbench.Hardware) { h.Overhead = math.Inf(1) },
	} {
		h := schedulerbench.MI300X()
		change(&h)
		if h.Validate() == nil {
			t.Errorf("%+v was taken", h)
		}
	}
}
