package workflows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
)

// ErrStuck means that a run cannot answer, because a task of one of its workflows fails
// again and again.
var ErrStuck = errors.New("the run is stuck")

// stuckPause lies between two looks at a run that owes an answer.
const stuckPause = time.Second

// giveCommand gives a command and returns the answer. It waits as long as ctx lets it,
// unless the run turns out to be stuck.
func giveCommand(ctx context.Context, c client.Client, at location, command string, arg Command) (answer string, err error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		tick := time.NewTicker(stuckPause)
		defer tick.Stop()
		for {
			select {
			case <-waiting.Done():
				return
			case <-tick.C:
			}
			if why := whyStuck(waiting, c, at.id); why != "" {
				cancel(fmt.Errorf("%w: %s", ErrStuck, why))
			}
		}
	}()
	handle, err := c.UpdateWorkflow(waiting, client.UpdateWorkflowOptions{
		WorkflowID: at.id, RunID: at.execution, UpdateName: command, Args: []any{arg},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(waiting, &answer)
	}
	if cause := context.Cause(waiting); errors.Is(cause, ErrStuck) {
		return "", cause
	}
	var early *serviceerror.WorkflowNotReady // from the third failure on
	if errors.As(err, &early) {
		if why := whyStuck(ctx, c, at.id); why != "" {
			return "", fmt.Errorf("%w: %s", ErrStuck, why)
		}
	}
	return answer, err
}

// whyStuck is the first task of a run's workflows that fails again and again.
func whyStuck(ctx context.Context, c client.Client, workflowID string) string {
	for _, t := range Troubles(ctx, c, workflowID) {
		if t.Workflow != "" {
			return t.String()
		}
	}
	return ""
}

// Patience bounds the parts of StopNow. The zero value takes defaults.
type Patience struct {
	// Answer is for the run's answer, End for its own end after that, Cancel for the
	// end of a run that was cancelled instead.
	Answer, End, Cancel time.Duration
}

const (
	defaultAnswerPatience = 10 * time.Second
	// defaultEndPatience is for the last writes of a run: several attempts at a busy
	// store, and the heartbeat time-out of an activity whose process is gone.
	defaultEndPatience    = time.Minute
	defaultCancelPatience = 10 * time.Second
	// childPatience is for the server to end what it ends with a run.
	childPatience = 5 * time.Second
	stopPause     = 100 * time.Millisecond
)

// Stopped is how a run was stopped.
type Stopped struct {
	// Answer of the run, "" where it gave none.
	Answer string
	// Forced is why the run was terminated; "" where it has ended by itself. A
	// terminated run has written no word about its end.
	Forced string
	// Execution is the id that the server gave to the execution of the run.
	Execution string
}

// StopNow ends a run, whatever state it is in. A run that does not answer or does not
// end in time is cancelled, and if that does not end it, it is terminated with its
// stages. say tells a person what is awaited.
func StopNow(ctx context.Context, c client.Client, runID string, arg Command, p Patience, say func(string)) (Stopped, error) {
	arg.Now = true
	id, err := FindRun(ctx, c, runID)
	if err != nil {
		return Stopped{}, fmt.Errorf("stop run %s: %w", runID, err)
	}
	described, err := Describe(ctx, c, id, "")
	if err != nil {
		return Stopped{}, fmt.Errorf("stop run %s: %w", runID, err)
	}
	s := stopping{client: c, id: id, execution: described.GetWorkflowExecutionInfo().GetExecution().GetRunId(), say: say}
	out := Stopped{Execution: s.execution}
	var why string
	out.Answer, why, err = s.ask(ctx, runID, arg, cmp.Or(p.Answer, defaultAnswerPatience))
	if err != nil {
		return out, err
	}
	if why == "" {
		if why, err = s.awaitEnd(ctx, cmp.Or(p.End, defaultEndPatience), true); why == "" || err != nil {
			return out, err
		}
	}
	say(fmt.Sprintf("%s; it is cancelled, and terminated if that does not end it", why))
	if err := c.CancelWorkflow(ctx, id, s.execution); err != nil && !isGone(err) {
		return out, fmt.Errorf("cancel run %s: %w", runID, err)
	}
	still, err := s.awaitEnd(ctx, cmp.Or(p.Cancel, defaultCancelPatience), false)
	if still == "" || err != nil {
		return out, err
	}
	out.Forced = why
	return out, s.terminate(ctx, "stopped"+byWhom(arg.Reason, arg.By)+"; "+why)
}

// stopping is an execution of a run that is to end.
type stopping struct {
	client        client.Client
	id, execution string
	say           func(string)
}

// ask gives the command. It returns why no answer came, and as an error what is no
// matter of the run's.
func (s stopping) ask(ctx context.Context, runID string, arg Command, patience time.Duration) (answer, why string, err error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err = Send(waiting, s.client, runID, CommandStop, arg)
	var refusal *temporal.ApplicationError
	var slow *serviceerror.WorkflowNotReady
	var late *client.WorkflowUpdateServiceTimeoutOrCanceledError
	switch {
	case err == nil:
		return answer, "", nil
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case errors.Is(err, ErrStuck):
		return "", shorten(err.Error()), nil
	case waiting.Err() != nil, errors.As(err, &slow), errors.As(err, &late):
		return "", fmt.Sprintf("run %s has not answered within %s", runID, patience), nil
	case errors.As(err, &refusal) && strings.Contains(refusal.Message(), stoppingAlready):
		return refusal.Message(), "", nil
	default:
		return "", "", err
	}
}

// running reports whether the run has not ended, as far as the server says.
func (s stopping) running(ctx context.Context) bool {
	d, err := Describe(ctx, s.client, s.id, s.execution)
	if err != nil {
		return !isGone(err)
	}
	return isOpen(d.GetWorkflowExecutionInfo().GetStatus())
}

// awaitEnd waits for the end of the run and returns why that does not come. With
// earlier it gives up as soon as the run is known to be stuck.
func (s stopping) awaitEnd(ctx context.Context, patience time.Duration, earlier bool) (why string, err error) {
	look, ask, end := time.NewTicker(stopPause), time.NewTicker(stuckPause), time.NewTimer(patience)
	defer look.Stop()
	defer ask.Stop()
	defer end.Stop()
	for s.running(ctx) {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-end.C:
			return fmt.Sprintf("the run has not ended within %s", patience), nil
		case <-ask.C:
			if why := whyStuck(ctx, s.client, s.id); earlier && why != "" {
				return why, nil
			}
		case <-look.C:
		}
	}
	return "", ctx.Err()
}

// terminate ends the run and what it has started.
func (s stopping) terminate(ctx context.Context, reason string) error {
	below := s.descendants(ctx, s.id, s.execution, 0)
	if err := s.client.TerminateWorkflow(ctx, s.id, s.execution, shorten(reason)); err != nil && !isGone(err) {
		return fmt.Errorf("terminate workflow %s: %w", s.id, err)
	}
	for _, child := range below {
		if _, err := child.awaitEnd(ctx, childPatience, false); err != nil {
			return err
		}
		if err := s.client.TerminateWorkflow(ctx, child.id, child.execution, shorten(reason)); err != nil && !isGone(err) {
			return fmt.Errorf("terminate workflow %s: %w", child.id, err)
		}
	}
	return nil
}

// descendants are the stages under way.
func (s stopping) descendants(ctx context.Context, id, execution string, depth int) []stopping {
	d, err := Describe(ctx, s.client, id, execution)
	if err != nil || depth >= maxDepth {
		return nil // the server ends them with their parent
	}
	var out []stopping
	for _, child := range d.GetPendingChildren() {
		out = append(out, stopping{client: s.client, id: child.GetWorkflowId(), say: s.say})
		out = append(out, s.descendants(ctx, child.GetWorkflowId(), "", depth+1)...)
	}
	return out
}

// isGone reports whether a workflow has ended meanwhile.
func isGone(err error) bool {
	var gone *serviceerror.NotFound
	return errors.As(err, &gone)
}
