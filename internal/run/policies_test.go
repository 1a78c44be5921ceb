package run_test

import (
	"fmt"
	"testing"

	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/run"
	"temper/internal/run/runtest"
)

// TestDroppedPoliciesAreNamed: who asks for one learns which there are.
func TestDroppedPoliciesAreNamed(t *testing.T) {
	h := runtest.New(t, map[string]string{"checkpoint.keep_policies": "2"})
	steps := []int{1, 2, 3, 4, 5, 6}
	h.StoreBatches(t, steps...)
	m := runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, steps...))
	for version, want := range map[int64]string{
		2:  "run demo has no policy 2 any more (checkpoint.keep_policies): it has 0, 4-6, the nearest are 0 and 4",
		9:  "run demo has no policy 9: it has 0, 4-6, the nearest is 6",
		-1: "run demo has no policy -1: it has 0, 4-6, the nearest is 0",
	} {
		_, err := run.PublishedPolicy(t.Context(), h.Store, "demo", version)
		if err == nil || err.Error() != want || !fault.IsUsers(err) {
			t.Errorf("export: got %v, want %s", err, want)
		}
		_, err = m.Publish(t.Context(), learner.PublishInput{Run: h.Ref, Step: int(version)})
		runtest.WantFault(t, err, fault.NotFound, want)
	}
	for _, start := range []string{"demo@2", "demo@9"} {
		_, err := runtest.Open(t, h.Store, run.Input{RunID: "child", Config: runtest.Text(t, runtest.StartRecipe), Set: map[string]string{"model.run": start}})
		runtest.WantFault(t, err, fault.InvalidConfig, fmt.Sprintf("model.run: is %s, but run demo has no policy", start))
	}
}
