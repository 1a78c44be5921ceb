package sandboxbench_test

import (
	"testing"

	"temper/tools/bench/sandboxbench"
)

// TestDensityOfAFew: every figure is there, and no kernel was lost on the way.
func TestDensityOfAFew(t *testing.T) {
	d, err := sandboxbench.MeasureDensity(t.Context(), sandboxbench.DensityConfig{Kernels: 4, Branches: 2})
	if err != nil {
		t.Fatal(err)
	}
	if d.Kernels != 5 || d.Pages <= 0 || d.Private <= 0 || d.Descriptors < 1 {
		t.Errorf("got %+v, want 5 kernels and what each holds", d)
	}
	for name, times := range map[string]sandboxbench.Times{"first": d.First, "next": d.Next, "branch": d.Branch, "replay": d.Replay, "call": d.Call} {
		if times.P50 <= 0 || times.P99 < times.P50 {
			t.Errorf("%s cell: %+v", name, times)
		}
	}
}
