package setup_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/trainer/checkpoint"
)

// meddled is a store in which something happens before the first put or list of a
// key that holds a text.
type meddled struct {
	blob.Store
	text   string
	meddle func()
}

func (m *meddled) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	m.at(key)
	return m.Store.Put(ctx, key, r, cond)
}

func (m *meddled) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	m.at(prefix)
	return m.Store.List(ctx, prefix)
}

func (m *meddled) at(key string) {
	if m.meddle != nil && strings.Contains(key, m.text) {
		first := m.meddle
		m.meddle = nil
		first()
	}
}

// TestForkOfARunThatPrunes: the checkpoint that a fork has chosen is deleted before
// it is pinned, and then another one is chosen; and once it is pinned it stays until
// the fork has its own.
func TestForkOfARunThatPrunes(t *testing.T) {
	for name, c := range map[string]struct {
		when string
		want int
	}{
		"before it is looked for": {"checkpoints/pins", 4},
		"before the pin":          {"checkpoints/pins/0", 2}, // which brings it back
		"before the claim":        {"runs/child/plan.json", 2},
	} {
		t.Run(name, func(t *testing.T) {
			h := runtest.New(t, nil) // keeps one checkpoint beside the ends of SFT and stages
			steps := []int{1, 2, 3, 4, 5, 6}
			h.StoreBatches(t, steps...)
			script := h.Script(t, steps...)
			parent := runtest.Boot(h.Store, &runtest.Fate{})
			runtest.CarryOut(t, parent, script[:5]) // to the checkpoint of step 2
			m := &meddled{Store: h.Store, text: c.when, meddle: func() { runtest.CarryOut(t, parent, script[5:7]) }}
			plan, err := runtest.Open(t, m, run.Input{
				RunID: "child", Fork: &run.ForkFrom{RunID: "demo", From: run.FromLast},
			})
			if err != nil {
				t.Fatal(err)
			}
			if plan.Fork == nil || plan.Fork.Step != c.want {
				t.Fatalf("fork of step %d, want %d", plan.Fork.Step, c.want)
			}
			entries, err := checkpoint.List(t.Context(), h.Store, "runs/child/checkpoints")
			if err != nil || !slices.ContainsFunc(entries, func(e checkpoint.Entry) bool { return e.Step == plan.SFTSteps+c.want }) {
				t.Errorf("the fork has %v (%v), want the checkpoint of step %d", entries, err, c.want)
			}
			pins, err := checkpoint.Pins(t.Context(), h.Store, h.Layout.Checkpoints())
			if err != nil || len(pins) != 0 {
				t.Errorf("pins %v (%v) stay", pins, err)
			}
		})
	}
}

// refusing is a store that takes no key which holds a text.
type refusing struct {
	blob.Store
	text string
}

func (r refusing) Put(ctx context.Context, key string, data io.Reader, cond blob.Condition) (blob.Ref, error) {
	if strings.Contains(key, r.text) {
		return blob.Ref{}, blob.ErrUnavailable
	}
	return r.Store.Put(ctx, key, data, cond)
}

// TestTwoForksOfOneCheckpoint: the first one that has its own leaves the parent's to the other.
func TestTwoForksOfOneCheckpoint(t *testing.T) {
	h := runtest.New(t, nil)
	steps := []int{1, 2, 3, 4, 5, 6}
	h.StoreBatches(t, steps...)
	script := h.Script(t, steps...)
	parent := runtest.Boot(h.Store, &runtest.Fate{})
	runtest.CarryOut(t, parent, script[:5]) // to the checkpoint of step 2
	input := func(id string) run.Input {
		return run.Input{RunID: id, Fork: &run.ForkFrom{RunID: "demo", From: run.FromLast}}
	}
	if _, err := runtest.Open(t, refusing{h.Store, "runs/first/checkpoints"}, input("first")); err == nil {
		t.Fatal("the first fork has its checkpoint already")
	}
	m := &meddled{Store: h.Store, text: "runs/second/plan.json", meddle: func() {
		if _, err := runtest.Open(t, h.Store, input("first")); err != nil {
			t.Error(err)
		}
		runtest.CarryOut(t, parent, script[5:7]) // to the next checkpoint, when the parent deletes this one
	}}
	if plan, err := runtest.Open(t, m, input("second")); err != nil || plan.Fork.Step != 2 {
		t.Errorf("the second fork: %+v (%v), want it of step 2", plan.Fork, err)
	}
	if pins, err := checkpoint.Pins(t.Context(), h.Store, h.Layout.Checkpoints()); err != nil || len(pins) != 0 {
		t.Errorf("pins %v (%v) stay", pins, err)
	}
}

// TestBestIsOneOrder: what retention keeps as best is what a fork takes as best, the
// checkpoint before the step that earned most.
func TestBestIsOneOrder(t *testing.T) {
	h := runtest.New(t, map[string]string{"checkpoint.best": "1", "checkpoint.every_steps": "1", "stages[0].until.steps": "6", "checkpoint.keep": "1"})
	for step, reward := range []float64{0.1, 0.2, 0.9, 0.3, 0.2} {
		built := run.BuiltBatch{Stats: run.StepRollouts{RewardMean: reward}}
		if _, err := blob.PutJSON(t.Context(), h.Store, h.Layout.Step(step+1).BatchStats(), built, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	m := runtest.Boot(h.Store, &runtest.Fate{})
	runtest.CarryOut(t, m, h.Script(t))
	for step := 1; step <= 5; step++ {
		if _, err := m.TrainStep(t.Context(), h.StepInput(t, step, true)); err != nil {
			t.Fatal(err)
		}
	}
	var left []int
	entries, err := checkpoint.List(t.Context(), h.Store, h.Layout.Checkpoints())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Step-h.Plan.SFTSteps)
	}
	if want := []int{0, 2, 5}; !slices.Equal(left, want) { // end of SFT, best, newest
		t.Errorf("checkpoints %v stay, want %v: step 3, made from 2, earned most", left, want)
	}
	plan, err := runtest.Open(t, h.Store, run.Input{RunID: "child", Fork: &run.ForkFrom{RunID: "demo", From: run.FromBest}})
	if err != nil || plan.Fork.Step != 2 {
		t.Errorf("fork %+v (%v), want of step 2", plan.Fork, err)
	}
}
