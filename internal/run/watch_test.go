package run_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/rules"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
)

// TestCollapseIsNotSilent: rewards fall to nothing and all groups are dropped. The
// run's event log says so once, and the same attempt again says the same and writes
// nothing.
func TestCollapseIsNotSilent(t *testing.T) {
	h := runtest.New(t, map[string]string{"watch.pause": "true"})
	var last run.Watched
	for n := 1; n <= 12; n++ {
		in := stepNumbers(h, n)
		in.Rollouts.InfraErrors = 0
		if n > 4 {
			in.Rollouts.RewardMean, in.Rollouts.Kept, in.Rollouts.GroupsAllCorrect = 0, 0, 0
			in.Rollouts.GroupsAllWrong = in.Rollouts.Groups
			in.Train.Metrics.Updates = 0
		}
		out, err := run.LogStep(t.Context(), h.Store, h.Config, in)
		if err != nil {
			t.Fatal(err)
		}
		before := runtest.Dump(t, h.Store)
		in.Ended = in.Ended.Add(time.Second) // a repeated task has another time
		again, err := run.LogStep(t.Context(), h.Store, h.Config, in)
		if diff := cmp.Diff(out, again) + cmp.Diff(before, runtest.Dump(t, h.Store)); err != nil || diff != "" {
			t.Fatalf("step %d again (%v):\n%s", n, err, diff)
		}
		if want := map[int]int{7: 1, 9: 1}[n]; len(out.Alerts) != want || want > 0 && !out.Alerts[0].Pause {
			t.Errorf("step %d: alerts %+v, want %d that pause the run", n, out.Alerts, want)
		}
		last = out
	}
	if len(last.Standing) != 2 {
		t.Errorf("%q stand, want the reward and the dropped groups", last.Standing)
	}
	var alerts []string
	for key, data := range runtest.Dump(t, h.Store) {
		if strings.HasPrefix(key, h.Layout.Events().Dir()+"/") && artifact.EventKind(key) == run.EventAlert {
			alerts = append(alerts, data)
		}
	}
	if len(alerts) != 2 {
		t.Errorf("%d alerts in the event log, want 2: %q", len(alerts), alerts)
	}
}

// TestRunWithoutAnUpdateSaysSo when it ends.
func TestRunWithoutAnUpdateSaysSo(t *testing.T) {
	for updates, want := range map[int]int{0: 1, 2: 0} {
		h := runtest.New(t, nil)
		for n := 1; n <= 2; n++ {
			in := stepNumbers(h, n)
			in.Rollouts.InfraErrors = 0
			in.Train.Metrics.Updates = updates
			if _, err := run.LogStep(t.Context(), h.Store, h.Config, in); err != nil {
				t.Fatal(err)
			}
		}
		in := run.FinishInput{Run: h.Ref, Policy: runtest.PolicyRef(2), Ended: begin()}
		if err := run.WarnOfNoUpdate(t.Context(), h.Store, in); err != nil {
			t.Fatal(err)
		}
		got := 0
		for key, data := range runtest.Dump(t, h.Store) {
			if artifact.EventKind(key) == run.EventAlert && strings.Contains(data, "none of the 2 steps made an update") {
				got++
			}
		}
		if got != want {
			t.Errorf("%d updates a step: %d words about it, want %d", updates, got, want)
		}
	}
}

// TestWatchGoesOnBehindAStageThatEndedEarly: the numbers of steps jump there, and what
// the rules know goes on: the run has made an update, though the last stage has not.
func TestWatchGoesOnBehindAStageThatEndedEarly(t *testing.T) {
	h := runtest.New(t, nil)
	second := h.Plan.Stages[1].FirstStep
	for n := 1; n <= 2; n++ {
		in := stepNumbers(h, n)
		if _, err := run.LogStep(t.Context(), h.Store, h.Config, in); err != nil {
			t.Fatal(err)
		}
	}
	if second <= 3 {
		t.Fatalf("the second stage begins at step %d: no step was left out", second)
	}
	in := stepNumbers(h, second)
	in.Stage, in.Train.Metrics.Updates = 2, 0
	if _, err := run.LogStep(t.Context(), h.Store, h.Config, in); err != nil {
		t.Fatal(err)
	}
	state, ok, err := artifact.Lookup[rules.WatchState](t.Context(), h.Store, h.Layout.Step(second).Watch())
	if err != nil || !ok || state.Updates == 0 || len(state.Walls) < 2 {
		t.Errorf("the watch knows %+v (%v, %v) after the jump, want the updates and the pace of the first stage", state, ok, err)
	}
	before := runtest.Dump(t, h.Store)
	if err := run.WarnOfNoUpdate(t.Context(), h.Store, run.FinishInput{Run: h.Ref, Policy: runtest.PolicyRef(int64(second)), Ended: begin()}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, runtest.Dump(t, h.Store)); diff != "" {
		t.Errorf("a run that made updates is said to have made none:\n%s", diff)
	}
}
