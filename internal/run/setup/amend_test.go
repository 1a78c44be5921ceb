package setup_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/run/setup"
)

// TestAmendmentIsWritten beside the first configuration, and found by its run.
func TestAmendmentIsWritten(t *testing.T) {
	h := runtest.New(t, nil)
	first := h.Ref.Config
	out, err := h.Amend(t, config.Amendment{FromStep: 2, Set: map[string]string{"stages[0].until.steps": "6"}, Reason: "slow", By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := setup.AddAmendment(t.Context(), h.Store, run.AmendInput{
		Run: run.Ref{RunID: "demo", Config: first}, Amendment: config.Amendment{FromStep: 2, Set: map[string]string{"stages[0].until.steps": "6"}, Reason: "slow", By: "ann"},
	}); err != nil || again.Config != out.Config {
		t.Errorf("a retry gives %+v (%v), want %+v", again.Config, err, out.Config)
	}
	if _, err := h.Amend(t, config.Amendment{FromStep: 3, Repeat: "first"}); err != nil {
		t.Fatal(err)
	}
	plan, ok, err := run.StoredPlan(t.Context(), h.Store, "demo")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	want := []run.Stage{
		{Index: 1, Name: "first", FirstStep: 1, Steps: 6},
		{Index: 2, Name: "second", FirstStep: 7, Steps: 2, Filter: true},
		{Index: 3, Name: "first.2", FirstStep: 9, Steps: 6, Of: 1},
	}
	if diff := cmp.Diff(want, plan.Stages); diff != "" || plan.Config == first {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if _, err := blob.ReadRef(t.Context(), h.Store, first); err != nil {
		t.Errorf("the first configuration is gone: %v", err)
	}
}

func TestAmendmentsThatCannotBe(t *testing.T) {
	for name, tt := range map[string]struct {
		a    config.Amendment
		want []string
	}{
		"unsafe and unknown": {config.Amendment{FromStep: 2, Set: map[string]string{"seed": "9", "rl.lr": "1"}}, []string{"seed: cannot be changed", "temper run fork", "rl.lr: unknown key"}},
		"behind the end":     {config.Amendment{FromStep: 99, Set: map[string]string{"rl.optimizer.lr": "1e-5"}}, []string{"from_step: is 99, but the run has 6 steps"}},
		"stage that is over": {config.Amendment{FromStep: 6, Set: map[string]string{"stages[0].until.steps": "9"}}, []string{"stages[0].until.steps: is of stage first, which is over", "repeat_stage"}},
		"stage cut short":    {config.Amendment{FromStep: 4, Set: map[string]string{"stages[0].until.steps": "2"}}, []string{"stages[0].until.steps: is 2, which ends stage first before step 4", "skip_stage"}},
		"no room":            {config.Amendment{FromStep: 2, Set: map[string]string{"stages[0].max_response_tokens": "399"}}, []string{"stages[0].max_response_tokens", "model.max_context"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := runtest.New(t, nil)
			before := runtest.Dump(t, h.Store)
			_, err := h.Amend(t, tt.a)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error\n%v\nwants %q", err, want)
				}
			}
			if after := runtest.Dump(t, h.Store); !maps.Equal(before, after) {
				t.Error("a refused amendment wrote something")
			}
		})
	}
}

// TestAmendmentThatIsProbablyAMistake is made, with a warning.
func TestAmendmentThatIsProbablyAMistake(t *testing.T) {
	h := runtest.New(t, nil)
	out, err := h.Amend(t, config.Amendment{FromStep: 2, Set: map[string]string{"rl.optimizer.lr": "0.9"}})
	if err != nil || len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "rl.optimizer.lr: moves from") {
		t.Errorf("warnings %q (%v), want one of the learning rate", out.Warnings, err)
	}
	if out, err = h.Amend(t, config.Amendment{FromStep: 3, Set: map[string]string{"rl.optimizer.lr": "0.5"}}); err != nil || len(out.Warnings) > 0 {
		t.Errorf("warnings %q (%v) of a change from 0.9 to 0.5, want none", out.Warnings, err)
	}
}
