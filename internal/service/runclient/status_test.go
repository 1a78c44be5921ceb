package runclient

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob/memblob"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/setup"
	"temper/workflows"
)

// TestStatusOfWhatHasEnded: how a run ended comes from the store, also where the
// server still remembers what it did when it failed.
func TestStatusOfWhatHasEnded(t *testing.T) {
	ended := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	failed := run.CatalogEntry{RunID: "r", State: run.StateFailed, Reason: "no disk", Step: 3, NumSteps: 9, Stage: "a", Updated: ended}
	asked := workflows.RunStatus{RunID: "r", State: workflows.StateTraining, Step: 3, NumSteps: 9, StageName: "a", PolicyVersion: 2, By: "ann"}
	for name, tt := range map[string]struct {
		status workflows.RunStatus
		entry  run.CatalogEntry
		want   workflows.RunStatus
	}{
		"both know": {asked, failed, workflows.RunStatus{RunID: "r", State: "failed", Reason: "no disk", Since: &ended, Step: 3, NumSteps: 9, StageName: "a", PolicyVersion: 2}},
		"the run not its last step": {workflows.RunStatus{RunID: "r", State: workflows.StateFailed, NumSteps: 9}, failed,
			workflows.RunStatus{RunID: "r", State: "failed", Reason: "no disk", Since: &ended, Step: 3, NumSteps: 9, PolicyVersion: 3}},
		"the store alone": {workflows.RunStatus{}, failed,
			workflows.RunStatus{RunID: "r", State: "failed", Reason: "no disk", Since: &ended, Step: 3, NumSteps: 9, StageName: "a", PolicyVersion: 3}},
		"it goes on": {asked, run.CatalogEntry{RunID: "r", State: run.StatePaused, Reason: "lunch"}, asked},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, withEntry(tt.status, tt.entry)); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		})
	}
}

// TestStatusOfWhatIsFrozen: a run that nobody can ask has its place from the store, and
// the status names the way out.
func TestStatusOfWhatIsFrozen(t *testing.T) {
	since := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	frozen := &workflows.Freeze{Workflow: "rl/r", By: "ann", Since: since}
	asked := workflows.RunStatus{RunID: "r", State: workflows.StatePaused, By: "ann", Since: &since, Frozen: frozen}
	entry := run.CatalogEntry{RunID: "r", State: run.StateTraining, Step: 3, NumSteps: 9, Stage: "a"}
	var out strings.Builder
	if err := WriteStatus(&out, withPlace(asked, entry)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"state    paused\n", "by       ann\n", "step     3 of 9, policy 3\n", "way out  temper run resume r, or Unpause on the page of rl/r in the web UI\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the status lacks %q:\n%s", want, &out)
		}
	}
	asked.Step, asked.NumSteps = 4, 9 // its stage has answered
	if got := withPlace(asked, entry); got.Step != 4 {
		t.Errorf("step %d, want that of the stage, 4", got.Step)
	}
}

// TestStatusOfAStuckRun: how far it has come is in the store.
func TestStatusOfAStuckRun(t *testing.T) {
	stuck := workflows.RunStatus{RunID: "r", State: workflows.StateStuck, Alerts: []string{"workflow rl/r is stuck, attempt 9 of its task: out of luck"}}
	var out strings.Builder
	if err := WriteStatus(&out, withPlace(stuck, run.CatalogEntry{RunID: "r", State: run.StateTraining, Step: 3, NumSteps: 9})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"state    stuck\n", "trouble  workflow rl/r is stuck, attempt 9 of its task: out of luck\n", "step     3 of 9, policy 3\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// TestForcedStopIsRecorded where the run was opened, and nowhere else.
func TestForcedStopIsRecorded(t *testing.T) {
	store := memblob.New()
	stopped := workflows.Stopped{Forced: "the run has not ended within 10s", Execution: "e"}
	if err := recordForced(t.Context(), store, "never", workflows.Command{}, stopped); err != nil {
		t.Errorf("a run that was never opened: %v", err)
	}
	config := `"stages:\n  - {name: s, until: {steps: 1}, data: {env: chase, num: 64, levels: [1]}}\n"`
	plan, err := setup.Open(t.Context(), store, run.Input{RunID: "r", Config: []byte(config)}, setup.Claim{Owner: "w", At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // once, however often it is said
		if err := recordForced(t.Context(), store, plan.RunID, workflows.Command{Reason: "enough", By: "ann"}, stopped); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := history.List(t.Context(), store)
	want := "the run was terminated: enough (by ann); the run has not ended within 10s"
	if err != nil || len(entries) != 1 || entries[0].State != run.StateStopped || entries[0].Reason != want {
		t.Errorf("the list says %+v, %v; want stopped, %q", entries, err, want)
	}
}
