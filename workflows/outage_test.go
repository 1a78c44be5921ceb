package workflows_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"

	"temper/workflows"
)

// TestRunOutlivesAWeekWithoutItsStore: wherever a run meets the outage, it goes on
// when the store is back. Inside workflow tasks, where attempts cost events, each
// piece of work is tried four times.
func TestRunOutlivesAWeekWithoutItsStore(t *testing.T) {
	const day = 24 * time.Hour
	for call, away := range map[string]time.Duration{
		"open": day, "select 1/1": day, "batch 1": day, "log 1": days, "event stage": day, "finish": day,
	} {
		t.Run(call, func(t *testing.T) {
			w := newWorld(2)
			env := newEnv(t, w)
			began := env.Now()
			var since time.Time
			w.away = func(got string) bool {
				if !strings.HasPrefix(got, call) {
					return false
				}
				if since.IsZero() {
					since = env.Now()
				}
				return env.Now().Sub(since) < away
			}
			inside := map[string]int{}
			env.SetOnLocalActivityStartedListener(func(info *activity.Info, _ context.Context, _ []any) { inside[info.ActivityID]++ })
			runDemo(env)
			if got := resultOf(t, env).Policy.Version; got != 2 {
				t.Errorf("policy %d, want 2", got)
			}
			checkEachStepOnce(t, w, 2)
			if elapsed := env.Now().Sub(began); elapsed < away || elapsed > away+time.Hour {
				t.Errorf("the run took %v, want a little more than %v", elapsed, away)
			}
			for id, n := range inside {
				if n > workflows.LocalAttempts {
					t.Errorf("local activity %s: %d attempts inside workflow tasks", id, n)
				}
			}
		})
	}
}

// TestFaultsAreNotRetriedOutside: what no retry can mend ends the run at once.
func TestFaultsAreNotRetriedOutside(t *testing.T) {
	w := newWorld(1)
	w.faults["batch 1"] = []error{finalError("Corrupt", "not what was stored")}
	env := newEnv(t, w)
	runDemo(env)
	if err := env.GetWorkflowError(); err == nil || !strings.Contains(workflows.Failure(err).Error(), "not what was stored") {
		t.Errorf("the run ends with %v", err)
	}
	if got := w.count("batch"); got != 1 {
		t.Errorf("%d attempts, want 1", got)
	}
}
