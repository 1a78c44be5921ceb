package workflows_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/workflow"

	"temper/workflows"
)

func TestWorkflowIDs(t *testing.T) {
	version := int64(7)
	for got, want := range map[string]string{
		workflows.RunWorkflowID("demo"):                        "rl/demo",
		workflows.StageWorkflowID("demo", 2, "two hops/x"):     "rl/demo/stage-02-two-hops-x",
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

// TestFiringsOfACronSchedule have names of their own, which fit into a run id.
func TestFiringsOfACronSchedule(t *testing.T) {
	at := time.Date(2026, 11, 21, 4, 0, 0, 0, time.FixedZone("", 3600))
	for _, tt := range []struct{ cron, name, want string }{
		{"", "nightly", "nightly"},
		{"0 3 * * *", "nightly", "nightly-2026-11-21T03-00-00Z"},
		{"@every 2s", strings.Repeat("n", 64), strings.Repeat("n", 43) + "-2026-11-21T03-00-00Z"},
	} {
		if got := workflows.RunIDOfStart(&workflow.Info{CronSchedule: tt.cron, WorkflowStartTime: at}, tt.name); got != tt.want {
			t.Errorf("%q of %s: %s, want %s", tt.cron, tt.name, got, tt.want)
		}
	}
}

// TestSetupOfOtherServers: the script for servers of others makes the attributes that workflows set.
func TestSetupOfOtherServers(t *testing.T) {
	text, err := os.ReadFile("../deploy/temporal/setup")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "<<'ATTRIBUTES'\n")
	list, _, _ = strings.Cut(list, "ATTRIBUTES\n")
	got := map[string]string{}
	for line := range strings.Lines(list) {
		name, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[name] = kind
	}
	want := map[string]string{}
	for name, kind := range workflows.SearchAttributes() {
		want[name] = kind.String()
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("attributes of the script (-got +want):\n%s", diff)
	}
}
