//go:build integration

package workflows_test

import (
	"slices"
	"strings"

	"temper/internal/rules"
	"temper/internal/run"
	"temper/workflows"
)

// playJudged passes the gate, evaluates sets, refills groups, ends a stage by a plateau and
// holds the next one by a collapse.
func playJudged(r recorder, id string) {
	r.w.plan.Gate, r.w.gate = true, run.GateResult{Passed: true, Text: "0.95 of 40 answers"}
	r.w.plan.EvalSets = []run.EvalSet{{Name: "aime", EverySteps: 2}}
	r.w.plan.Stages[0].Steps, r.w.plan.Stages[1].FirstStep, r.w.plan.Stages[1].Steps = 5, 6, 2
	for i := range r.w.plan.Stages {
		r.w.plan.Stages[i].Judged = true
	}
	r.w.plan.Stages[0].Refill, r.w.signals = 2, 2
	r.w.verdicts = map[int]run.StageVerdict{
		3: {Kind: rules.Plateau, Reason: "nothing gained", End: true}, 6: {Kind: rules.Collapse, Reason: "mean reward 0.1, was 0.9", Pause: true},
	}
	flow := r.start(id)
	r.awaitState(id, workflows.StatePaused)
	if s := r.status(id); !strings.HasPrefix(s.Reason, "collapse: mean reward 0.1") || s.Step != 6 {
		r.Errorf("status %+v, want held by the collapse after step 6", s)
	}
	r.send(id, workflows.CommandResume, workflows.Command{})
	r.awaitClosed(flow)
	if got := r.w.finish[0].Policy.Version; got != 7 || slices.Contains(r.w.log(), "train 4") {
		r.Errorf("policy %d after %v, want 7 and no step 4", got, r.w.log())
	}
	r.keep("judged-run", workflows.RunWorkflowID(id))
	r.keep("judged-ended-stage", workflows.StageWorkflowID(id, 1, "hop1"))
	r.keep("judged-held-stage", workflows.StageWorkflowID(id, 2, "hop2"))
}
