package artifact_test

import (
	"testing"

	"temper/internal/run/artifact"
)

// TestTimelessLeavesOutWhatMachinesDecide: times and what was busy differ from run to run,
// in records, in the series and in the parts of a worker.
func TestTimelessLeavesOutWhatMachinesDecide(t *testing.T) {
	got, err := artifact.Timeless("steps/000001/step.json", []byte(`{"step": 1, "metrics": {"critic/rewards/mean": 0.5, "timing_s/gen": 1, "cpu_s/idle": 2, "engine/busy_rows_p10": 3},
		"busy": [{"host": "a", "passes_by_rows": [1]}]}`))
	if want := `{"metrics":{"critic/rewards/mean":0.5},"step":1}` + "\n"; err != nil || string(got) != want {
		t.Errorf("%s (%v), want %s", got, err, want)
	}
}
