//go:build integration

package workflows_test

import (
	"testing"
	"time"

	"temper/internal/fault"
	"temper/internal/run/ablation"
	"temper/workflows"
)

// TestAblateHistories plays the shapes of an ablation; see TestHistories.
func TestAblateHistories(t *testing.T) {
	c := dialServer(t)
	for name, play := range map[string]func(recorder, string){"ablate-whole": playAblation, "ablate-paused": playPausedAblation} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			defer serve(t, c, w)()
			r := recorder{T: t, c: c, w: w}
			id := uniqueRun(t, "abl")
			play(r, id)
			r.keep(name, workflows.AblateWorkflowID(id))
		})
	}
}

func (r recorder) startAblation(in ablation.Input) {
	r.Helper()
	if err := workflows.StartAblation(r.Context(), r.c, in); err != nil {
		r.Fatal(err)
	}
}

func (r recorder) awaitAblation(id string) (out ablation.Outcome) {
	r.Helper()
	if err := workflows.AwaitEnd(r.Context(), r.c, workflows.AblateWorkflowID(id), &out); err != nil {
		r.Fatal(err)
	}
	return out
}

// playAblation has a run that fails, one that is in the store, and two that are made.
func playAblation(r recorder, id string) {
	in := ablationOf(1, 1, 2)
	in.ID = id
	r.w.ablated[id+"-off-s1"] = "stored done"
	r.w.faults["train 1"] = []error{finalError(string(fault.Diverged), "loss is NaN")}
	r.startAblation(in)
	if out := r.awaitAblation(id); out.Whole != 3 || out.Of != 4 {
		r.Errorf("outcome %+v", out)
	}
}

// playPausedAblation pauses two runs that go on at a time, and resumes them.
func playPausedAblation(r recorder, id string) {
	r.w.hold = 100 * time.Millisecond
	r.w.plan.Stages[0].Steps = 3
	in := ablationOf(2, 1)
	in.ID = id
	r.startAblation(in)
	await(r, "two runs", func() bool { return r.w.count("train 1") >= 2 })
	if _, err := workflows.CommandAblation(r.Context(), r.c, id, workflows.CommandPause, workflows.Command{Reason: "lunch"}); err != nil {
		r.Fatal(err)
	}
	for _, run := range []string{id + "-on-s1", id + "-off-s1"} {
		r.awaitState(run, workflows.StatePaused)
	}
	s, err := workflows.StatusOfAblation(r.Context(), r.c, id)
	if err != nil || s.State != workflows.StatePaused || s.Reason != "lunch" {
		r.Errorf("status %+v, error %v", s, err)
	}
	if err := workflows.StartAblation(r.Context(), r.c, in); err == nil {
		r.Error("an ablation that goes on was started again")
	}
	if _, err := workflows.CommandAblation(r.Context(), r.c, id, workflows.CommandResume, workflows.Command{}); err != nil {
		r.Fatal(err)
	}
	if out := r.awaitAblation(id); out.Whole != 2 {
		r.Errorf("outcome %+v", out)
	}
}
