package learner_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
	"temper/internal/learner"
	"temper/internal/run/runtest"
)

// TestDeathAfterAnAmendmentChangesNothing: steps before it are made again as the
// configuration was then, also where the learner must be another one.
func TestDeathAfterAnAmendmentChangesNothing(t *testing.T) {
	h := runtest.New(t, map[string]string{"checkpoint.every_steps": "9"})
	steps := []int{1, 2, 4, 5}
	h.StoreBatches(t, steps...)
	script := h.Script(t, 1, 2)
	if _, err := h.Amend(t, config.Amendment{FromStep: 4, Set: map[string]string{"rl.optimizer.lr": "1e-5", "rl.loss.clip_high": "0.3"}}); err != nil {
		t.Fatal(err)
	}
	script = append(script, h.Script(t, 4, 5)[3:]...)
	content := runtest.Dump(t, h.Store)
	undisturbed := runtest.Fate{}
	if m := runtest.Play(t, h.Store, &undisturbed, false, script); len(m.Learners) != 2 {
		t.Errorf("%d learners, want another one for other graphs", len(m.Learners))
	}
	want := runtest.Durable(t, h.Store)
	for at := 1; at <= undisturbed.Count; at++ {
		if !writes(undisturbed.Names[at-1]) {
			continue
		}
		f := runtest.Fate{At: at}
		store := runtest.Fill(t, content)
		runtest.Play(t, store, &f, true, script)
		if got := runtest.Durable(t, store); !maps.Equal(got, want) {
			t.Fatalf("death %s: got -, want +\n%s", f.Names[at-1], cmp.Diff(got, want))
		}
	}
}

// TestCheckpointOnOrder: asking twice makes one.
func TestCheckpointOnOrder(t *testing.T) {
	h := runtest.New(t, map[string]string{"checkpoint.keep": "9"})
	h.StoreBatches(t, 1)
	f := runtest.Fate{}
	m := runtest.Play(t, h.Store, &f, false, h.Script(t, 1))
	for range 2 {
		if err := m.SaveCheckpoint(t.Context(), learner.SaveInput{Run: h.Ref, Step: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if steps := h.Checkpoints(t); !cmp.Equal(steps, []int{2, 4, 5}) {
		t.Errorf("checkpoints of cursors %v, want 2, 4 and 5", steps)
	}
}
