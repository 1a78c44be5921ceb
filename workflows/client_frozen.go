package workflows

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"temper/internal/fault"
)

// byWebUI is who pauses without a name: the web UI knows its users only where they
// sign in.
const byWebUI = "web UI"

// PausedBy is the pause that the server was given for a workflow as it describes it;
// nil where it has none.
func PausedBy(d *workflowservice.DescribeWorkflowExecutionResponse) *Freeze {
	info := d.GetWorkflowExecutionInfo()
	if info.GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_PAUSED {
		return nil
	}
	pause := d.GetWorkflowExtendedInfo().GetPauseInfo()
	f := &Freeze{Workflow: info.GetExecution().GetWorkflowId(), Reason: pause.GetReason(), By: cmp.Or(pause.GetIdentity(), byWebUI)}
	if at := pause.GetPausedTime(); at != nil {
		f.Since = at.AsTime()
	}
	return f
}

// Frozen lists what the server has paused of a run, named by its workflow id: the run
// itself and what runs below it.
func Frozen(ctx context.Context, c client.Client, workflowID string) ([]Freeze, error) {
	return frozen(ctx, c, workflowID, 0)
}

func frozen(ctx context.Context, c client.Client, workflowID string, depth int) ([]Freeze, error) {
	described, err := Describe(ctx, c, workflowID, "")
	if err != nil {
		return nil, fmt.Errorf("describe workflow %s: %w", workflowID, err)
	}
	var out []Freeze
	if f := PausedBy(described); f != nil {
		f.Below = depth > 0
		out = append(out, *f)
	}
	if depth+1 >= maxDepth {
		return out, nil
	}
	for _, child := range described.GetPendingChildren() {
		below, err := frozen(ctx, c, child.GetWorkflowId(), depth+1)
		var gone *serviceerror.NotFound
		if err != nil && !errors.As(err, &gone) {
			return out, err
		}
		out = append(out, below...)
	}
	return out, nil
}

// refuseFrozen refuses a command to a run that the server has paused, wholly or in
// part: it would be refused without a reason, or wait for an answer that never comes.
func refuseFrozen(ctx context.Context, c client.Client, workflowID, runID string) error {
	all, err := Frozen(ctx, c, workflowID)
	if err != nil || len(all) == 0 {
		return err
	}
	f := all[0]
	return fault.Newf(fault.Refused, "%s since %s: let it go on first, by temper run resume %s or by Unpause on its page in the web UI",
		&f, f.Since.UTC().Format("2006-01-02 15:04:05Z"), runID)
}

// HeldBy asks a run or a stage what its gate is held by, beside commands.
func HeldBy(ctx context.Context, c client.Client, workflowID string) (*Freeze, error) {
	s, err := queryStatus(ctx, c, workflowID, "")
	return s.Frozen, err
}

// TellFreeze sends the gate of a run or a stage the freeze that holds it from now on; nil
// releases it.
func TellFreeze(ctx context.Context, c client.Client, workflowID string, f *Freeze) error {
	return c.SignalWorkflow(ctx, workflowID, "", signalFreeze, freezeSignal{Freeze: f})
}

// frozenStatus is the status of a run that the server has paused: it cannot be asked,
// but its stage can.
func frozenStatus(ctx context.Context, c client.Client, runID string, described *workflowservice.DescribeWorkflowExecutionResponse) RunStatus {
	f := PausedBy(described)
	g := gate{gateState: gateState{Frozen: f}}
	s := RunStatus{RunID: runID, State: StatePaused, Opened: true, Frozen: f}
	for _, a := range described.GetPendingActivities() {
		if a.GetState() == enums.PENDING_ACTIVITY_STATE_STARTED {
			s.State = StatePausing // what is in flight ends first
		}
	}
	for _, child := range described.GetPendingChildren() {
		stage, err := queryStatus(ctx, c, child.GetWorkflowId(), "")
		if err != nil {
			continue // it has not begun, has just ended or is paused, too
		}
		s.Child, s.Stage, s.StageName, s.NumSteps = child.GetWorkflowId(), stage.Stage, stage.StageName, stage.NumSteps
		s = s.withStage(stage)
		if s.State != StatePaused { // it does not know yet, or its step ends first
			s.State = StatePausing
		}
	}
	s.Reason, s.By, s.Since = g.reasons()
	return s
}

// withFrozenStage reports that the server has paused the stage of a run.
func (s RunStatus) withFrozenStage(f *Freeze) RunStatus {
	f.Below = true
	s.Frozen = f
	if s.State != StateStopping {
		s.State = StatePaused
	}
	if s.Since == nil { // no command says more
		g := gate{gateState: gateState{Frozen: f}}
		s.Reason, s.By, s.Since = g.reasons()
	}
	return s
}
