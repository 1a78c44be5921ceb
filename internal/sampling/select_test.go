package sampling_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/run/runtest"
)

// TestEpochCoversEachProblemOnce: 7 problems in steps of 3.
func TestEpochCoversEachProblemOnce(t *testing.T) {
	h := runtest.New(t, nil)
	times := map[string]int{}
	handed := 0
	for step := 1; step <= 14; step++ {
		ids := h.Selected(t, 1, step)
		if len(ids) != 3 || ids[0] == ids[1] || ids[1] == ids[2] || ids[0] == ids[2] {
			t.Fatalf("step %d: %v", step, ids)
		}
		if diff := cmp.Diff(h.Selected(t, 1, step), ids); diff != "" {
			t.Errorf("step %d is selected anew:\n%s", step, diff)
		}
		for _, id := range ids {
			if times[id] != handed/7 {
				t.Errorf("step %d, epoch %d: %s for the %d. time", step, handed/7+1, id, times[id]+1)
			}
			times[id]++
			handed++
		}
	}
	if len(times) != 7 {
		t.Errorf("%d problems were handed out, want 7", len(times))
	}
}
