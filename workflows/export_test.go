package workflows

import (
	"go.temporal.io/api/common/v1"

	"temper/internal/run"
)

// FailureText is for tests: an error of a workflow that timed out cannot be made
// from outside the SDK.
var FailureText = failureText

// The bounds of control work within a workflow task are for tests of what it costs.
const (
	LocalAttempts = localAttempts
	LocalPatience = localPatience
)

// Refusals are why a run that has just been opened refuses a command, by each name.
func Refusals(c Command) []string {
	r := newRun(run.Input{})
	g := r.gate
	g.carry = (&steering{at: r.at, gate: g, state: r.state, link: r.link, end: r.end}).handlers()
	var out []string
	for _, name := range commands() {
		if err := g.refuseNew(name, c); err != nil {
			out = append(out, err.Error())
		}
	}
	return out
}

// TakeReceipt has a run of the plan take the answer of a stage.
func TakeReceipt(plan run.Plan, data []byte) {
	r := newRun(run.Input{})
	r.at.plan = plan
	r.at.applyPlan()
	r.link.orders = 1
	_ = r.link.takeReceipt(nil, signalContent{&common.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: data}}) // refused is well
	_ = r.state.status().details("")
}

// StageAlone is RLStage without the check that a run has started it.
var StageAlone = runStage

// RunIDOfStart is for tests: the test environment knows no cron schedule of the workflow
// that it runs.
var RunIDOfStart = runIDOfStart
