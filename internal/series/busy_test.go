package series_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/series"
)

// TestBusy: two processes on one machine count each, their machine counts once, and another
// machine comes on top.
func TestBusy(t *testing.T) {
	s := time.Second
	step := series.Step{
		SamplingBusy: []series.Busy{
			{Host: "a", Wall: 4 * s, Process: 3 * s, Sandbox: 2 * s, Machine: 8 * s, Idle: 1 * s, Programs: s, Passes: []int64{0, 1, 0, 8}},
			{Host: "a", Wall: 3 * s, Process: 1 * s, Sandbox: 1 * s, Machine: 6 * s, Idle: 9 * s, Programs: s},
			{Host: "b", Wall: 5 * s, Process: 4 * s, Machine: 5 * s, Idle: 5 * s, Programs: s, Passes: []int64{0, 0, 0, 0, 0, 11}},
		},
		TrainingBusy: &series.Busy{Host: "a", Process: 6 * s, Machine: 7 * s, Idle: 3 * s},
	}
	want := series.Values{
		series.EngineCPU: 8, series.SandboxCPU: 2, series.TrainerCPU: 6, series.RestCPU: 2 + 1 + 1, series.IdleCPU: 1 + 5 + 3,
		series.EnginePasses: 20, series.BusyRows: (1 + 24 + 55) / 20.0, series.BusyRowsP10: 3,
	}
	got := step.Values()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %v, want %v", name, got[name], value)
		}
	}
	step.SamplingBusy = []series.Busy{{Host: "a", Programs: s}, {Host: "b", Programs: s}}
	if got := step.Values()[series.SandboxCPU]; got != 2 {
		t.Errorf("a sandbox elsewhere took %v s, want what its programs took", got)
	}
}

func TestPool(t *testing.T) {
	if diff := cmp.Diff([]int64{1, 3, 4}, series.Pool([]int64{1, 1}, []int64{0, 2, 4})); diff != "" {
		t.Error(diff)
	}
}
