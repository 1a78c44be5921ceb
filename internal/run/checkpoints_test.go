package run_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// TestRewardOfAPolicyIsOfTheStepItSampled: with a window that is not the step after it,
// and the last policies of a stage have none.
func TestRewardOfAPolicyIsOfTheStepItSampled(t *testing.T) {
	store := memblob.New()
	for step, reward := range []float64{0, 0.1, 0.2, 0.9, 0.4, 0.8, 0.3} { // of steps 1 to 6
		built := run.BuiltBatch{Stats: run.StepRollouts{RewardMean: reward}}
		if _, err := blob.PutJSON(t.Context(), store, artifact.Layout{RunID: "demo"}.Step(step).BatchStats(), built, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	const sft = 30
	cursors := []int{10, sft, sft + 1, sft + 2, sft + 3, sft + 4, sft + 5, sft + 6}
	for _, row := range []struct {
		window, newest int
		want           []int // by policy version
	}{
		{0, math.MaxInt, []int{2, 4, 3, 5, 1, 0}}, // steps 3 5 4 6 2 1
		{1, math.MaxInt, []int{1, 4, 2, 0}},       // steps 3 5 4 1
		{1, 3, []int{1, 0}},
		{2, math.MaxInt, []int{4, 1, 0}}, // steps 5 4 1
	} {
		plan := run.Plan{RunID: "demo", SFTSteps: sft, Window: row.window, Stages: []run.Stage{{FirstStep: 1, Steps: 4}, {FirstStep: 5, Steps: 2}}}
		got, err := run.BestCursors(t.Context(), store, plan, cursors, row.newest)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			got[i] -= sft
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("window %d, up to step %d (-want +got):\n%s", row.window, row.newest, diff)
		}
	}
}
