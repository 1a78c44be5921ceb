package workflows_test

import (
	"testing"

	"temper/workflows"
)

func TestWorkflowIDs(t *testing.T) {
	version := int64(7)
	for got, want := range map[string]string{
		workflows.RunWorkflowID("demo"):                        "rl/demo",
		workflows.StageWorkflowID("demo", 2, "two hops/x"):     "rl/demo/stage-02-two-hops-x",
		workflows.StepWorkflowID("demo", 123):                  "rl/demo/step-000123",
		workflows.EvaluateWorkflowID("demo", nil):              "rl/demo/eval-last",
		workflows.EvaluateWorkflowID("demo", &version):         "rl/demo/eval-000007",
		workflows.RunIDFromWorkflowID("rl/demo-1"):             "demo-1",
		workflows.RunIDFromWorkflowID("../../etc/passwd"):      "etc-passwd",
		workflows.RunIDFromWorkflowID("nightly 2026-11-21T12"): "nightly-2026-11-21T12",
		workflows.RunIDFromWorkflowID("rl/"):                   "run",
	} {
		if got != want {
			t.Errorf("id %q, want %q", got, want)
		}
	}
}
