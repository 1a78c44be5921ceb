package history_test

import (
	"slices"
	"testing"

	"temper/internal/blob"
	"temper/internal/history"
	"temper/internal/run/artifact"
	"temper/internal/run/record"
	"temper/internal/run/runtest"
)

// TestTimesOfARun: each trajectory of a run that was sampled has its times, those of a run
// without them are not recorded, and a damaged object hides nothing but itself.
func TestTimesOfARun(t *testing.T) {
	h := runtest.New(t, map[string]string{"tracker.tool_outputs": "true"})
	h.Whole(t, 2, false)
	r := mustOpen(t, h.Store, h.Layout.RunID)
	o := history.RolloutsOf(r)
	problems, err := r.Problems(t.Context(), 1)
	if err != nil || len(problems) == 0 {
		t.Fatalf("%d problems (%v)", len(problems), err)
	}
	ts, err := r.Group(t.Context(), 1, problems[0])
	if err != nil {
		t.Fatal(err)
	}
	outputs := 0
	for _, one := range ts {
		times, ok, err := timesOf(t, o, 1, one.ProblemID, one.Rollout)
		if err != nil || !ok || len(times.Turns) != len(one.Turns) || len(times.Turns[0].Calls) != len(one.Turns[0].Calls) {
			t.Errorf("%s/%d: times %+v (%v), of %d turns", one.ProblemID, one.Rollout, times, err, len(one.Turns))
		}
		list, err := o.OutputsOf(t.Context(), 1, one.ProblemID, one.Rollout)
		if err != nil {
			t.Fatal(err)
		}
		outputs += len(list)
	}
	if outputs == 0 {
		t.Error("no output was kept")
	}
	infos, err := h.Store.List(t.Context(), h.Layout.Step(1).TimesFolder()+"/")
	if err != nil || len(infos) == 0 {
		t.Fatalf("%d objects of times (%v)", len(infos), err)
	}
	for _, info := range infos {
		if !artifact.Aside(info.Key) || !h.Layout.Chain().Omits(info.Key) {
			t.Errorf("%s counts as one of the run's own", info.Key)
		}
		if _, err := blob.PutBytes(t.Context(), h.Store, info.Key, []byte("temper times 1\nx"), blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := timesOf(t, o, 1, ts[0].ProblemID, ts[0].Rollout); ok || err != nil {
		t.Errorf("damaged times were read (%v)", err)
	}
	if _, ok, err := timesOf(t, o, 99, ts[0].ProblemID, 0); ok || err != nil {
		t.Errorf("times of a step that is not there (%v)", err)
	}
}

// timesOf are the times of one trajectory; ok is false where they are not recorded in full.
func timesOf(t *testing.T, o history.Rollouts, step int, problemID string, rollout int) (record.Times, bool, error) {
	t.Helper()
	all, err := o.Times(t.Context(), step)
	parts := slices.DeleteFunc(all, func(one record.Times) bool { return one.Problem != problemID || one.Rollout != rollout })
	times, ok := record.JoinTimes(parts)
	return times, ok, err
}
