package sampling_test

import (
	"context"
	"slices"
	"testing"

	"temper/internal/inference"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
)

// forgetful is an engine that plans and is told of what was before it.
type forgetful struct {
	*runtest.Scripted
	told [][]inference.Ended
}

func (f *forgetful) Recall(ended []inference.Ended)                      { f.told = append(f.told, ended) }
func (f *forgetful) Begin(context.Context, []inference.Trajectory) error { return nil }

// TestAnEngineIsToldTheLengthsOfBefore, once: those of the last two steps in the store. What
// cannot be read is left out.
func TestAnEngineIsToldTheLengthsOfBefore(t *testing.T) {
	h := runtest.New(t, nil)
	r, _ := h.NewSampling(t)
	for step := 1; step <= 3; step++ {
		if _, err := r.SampleGroups(t.Context(), sampleInput(t, h, 1, step), r.NewProgress()); err != nil {
			t.Fatal(err)
		}
	}
	lost := h.Selected(t, 1, 2)[0]
	runtest.Put(t, h.Store, h.Layout.Step(2).Group(lost), "{")
	want := runtest.Dump(t, h.Store)
	r, scripted := h.NewSampling(t)
	engine := &forgetful{Scripted: scripted}
	r.NewEngine = func(*run.Loaded) (sampling.Engine, error) { return engine, nil }
	in := sampleInput(t, h, 1, 3) // all of it is stored
	for range 2 {
		if _, err := r.SampleGroups(t.Context(), in, r.NewProgress()); err != nil {
			t.Fatal(err)
		}
	}
	if len(engine.told) != 1 {
		t.Fatalf("told %d times", len(engine.told))
	}
	problems := 0
	for _, e := range engine.told[0] {
		problems++
		step := 1
		if slices.Contains(h.Selected(t, 1, 2), e.Problem) && !slices.Contains(h.Selected(t, 1, 1), e.Problem) {
			step = 2
		}
		group := runtest.ReadLines[rl.Trajectory](t, h.Store, h.Layout.Step(step).Group(e.Problem))
		last := e.Turns[0]
		if e.Run != "demo" || e.Stage != 1 || e.Limit != 120 || len(e.Turns) != len(group) || e.Problem == lost && step == 2 ||
			last[len(last)-1] != group[0].Turns[len(group[0].Turns)-1].End-group[0].PromptTokens {
			t.Errorf("told %+v", e)
		}
	}
	if problems < 3 || problems > 5 {
		t.Errorf("told of %d problems", problems)
	}
	if got := runtest.Dump(t, h.Store); len(got) != len(want) {
		t.Errorf("%d objects, want %d", len(got), len(want))
	}
}
