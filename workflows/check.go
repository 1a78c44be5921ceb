package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"temper/internal/config"
	"temper/internal/run"
)

// A workflow of a stage or of a step takes what its run hands down. Somebody may start
// one by hand, though, and the server refuses commands that are made of such numbers
// and names, again and again: what it would refuse ends the workflow before that.

// Limits of what a run hands down.
const (
	maxStageName = 64
	maxSteps     = 10_000_000
	maxPriority  = 5
	maxStall     = 10 * 365 * 24 * time.Hour
)

func (in StageInput) check() error {
	wrong := checkStage(in.Run, in.Plan, in.Priority)
	if n := in.Progress.NextStep; n < 0 || n > maxSteps {
		wrong = append(wrong, fmt.Sprintf("progress.next_step is %d, want 0 to %d", n, maxSteps))
	}
	if in.Window < 0 || in.Window > config.MaxWindow {
		wrong = append(wrong, fmt.Sprintf("window is %d, want 0 to %d", in.Window, config.MaxWindow))
	}
	if n := in.PartialTokens; n < 0 || n > 0 && in.Window == 0 {
		wrong = append(wrong, fmt.Sprintf("partial_rollout_tokens is %d, want 0, or more with a window", n))
	}
	if d := in.Progress.StallAfter; d > maxStall {
		wrong = append(wrong, fmt.Sprintf("progress.stall_after_ns is %s, want at most %s", d, maxStall))
	}
	return checked(wrong)
}

func (in StepInput) check() error {
	wrong := checkStage(in.Run, in.Stage, in.Priority)
	if in.Step < 1 || in.Step > maxSteps {
		wrong = append(wrong, fmt.Sprintf("step is %d, want 1 to %d", in.Step, maxSteps))
	}
	return checked(wrong)
}

func checkStage(ref run.Ref, plan run.Stage, priority int) (wrong []string) {
	if ref.RunID == "" || RunIDFromWorkflowID(ref.RunID) != ref.RunID {
		wrong = append(wrong, fmt.Sprintf("run_id %q is not that of a run", brief(ref.RunID)))
	}
	if plan.Name == "" || len(plan.Name) > maxStageName || safeName(plan.Name) != plan.Name {
		wrong = append(wrong, fmt.Sprintf("name %q is not that of a stage", brief(plan.Name)))
	}
	for _, n := range []struct {
		key                string
		value, least, most int
	}{
		{"index", plan.Index, 1, maxSteps},
		{"first_step", plan.FirstStep, 1, maxSteps},
		{"steps", plan.Steps, 0, maxSteps},
		{"offset", plan.Offset, 0, maxSteps},
		{"of", plan.Of, 0, maxSteps},
		{"priority", priority, 0, maxPriority},
	} {
		if n.value < n.least || n.value > n.most {
			wrong = append(wrong, fmt.Sprintf("%s is %d, want %d to %d", n.key, n.value, n.least, n.most))
		}
	}
	return wrong
}

// checked is the failure of a workflow whose input is wrong.
func checked(wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	return refused(errors.New("this workflow is started by a run: " + strings.Join(wrong, "; ")))
}
