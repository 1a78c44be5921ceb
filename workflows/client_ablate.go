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
	"go.temporal.io/sdk/workflow"

	"temper/internal/run/ablation"
)

// AblationStatus is the answer to the query status of Ablate.
type AblationStatus struct {
	ID     string          `json:"id"`
	State  State           `json:"state"`
	Reason string          `json:"reason,omitempty"`
	By     string          `json:"by,omitempty"`
	Since  *time.Time      `json:"since,omitempty"`
	Runs   []AblationState `json:"runs"`
}

// AblationState is how a run of an ablation is.
type AblationState struct {
	ablation.Planned
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// counts says how many runs are in each state.
func (s AblationStatus) counts() string {
	n := map[string]int{}
	for _, r := range s.Runs {
		n[r.State]++
	}
	var parts []string
	for _, state := range []string{ablation.RunDone, ablation.RunFound, ablation.RunGoing, ablation.RunWaiting, ablation.RunStopped, ablation.RunFailed} {
		if n[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[state], state))
		}
	}
	return fmt.Sprintf("%d runs: %s", len(s.Runs), strings.Join(parts, ", "))
}

// String is one line for people.
func (s AblationStatus) String() string {
	text := fmt.Sprintf("ablation %s: %s%s", s.ID, s.State, byWhom(s.Reason, s.By))
	if s.Since != nil {
		text += ", since " + s.Since.UTC().Format(time.RFC3339)
	}
	return text + "; " + s.counts()
}

func (a *ablating) status() AblationStatus {
	s := AblationStatus{ID: cmp.Or(a.Plan.ID, a.in.ID), State: StateTraining, Reason: a.Reason, By: a.By, Since: a.Since}
	switch {
	case len(a.runs) == 0:
		s.State = StatePreparing
	case a.over:
		s.State = StateDone
	case a.stopping:
		s.State = StateStopping
	case a.Paused:
		s.State = StatePaused
	}
	for i, r := range a.runs {
		s.Runs = append(s.Runs, AblationState{Planned: r, State: a.States[i], Reason: a.Reasons[i]})
	}
	return s
}

// listen installs query and commands. It does not block.
func (a *ablating) listen(ctx workflow.Context) error {
	if c := a.in.Continued; c != nil {
		a.Progress = *c
	}
	for _, order := range []struct{ name, about string }{
		{CommandPause, "Begins no further run and pauses those that go on, as the command of a run does."},
		{CommandResume, "Lets the paused ablation and its runs go on."},
		{CommandStop, "Begins no further run, stops those that go on, and stores the figures of what is whole."},
	} {
		name, about := order.name, order.about
		err := workflow.SetUpdateHandlerWithOptions(ctx, name,
			func(ctx workflow.Context, c Command) (string, error) { return a.obey(ctx, name, c), nil },
			workflow.UpdateHandlerOptions{Description: about, Validator: func(c Command) error { return a.refusal(name, c) }})
		if err != nil {
			return fmt.Errorf("update handler %s: %w", name, err)
		}
	}
	return workflow.SetQueryHandlerWithOptions(ctx, QueryStatus, func() (AblationStatus, error) { return a.status(), nil },
		workflow.QueryHandlerOptions{Description: "The runs of the ablation and how each is."})
}

// refusal says why a command makes no sense now; nil accepts it.
func (a *ablating) refusal(name string, c Command) error {
	if err := cmp.Or(c.check(), checkKeys(name, c)); err != nil {
		return err
	}
	switch {
	case a.over || a.stopping:
		return errors.New("the ablation is ending already")
	case name == CommandPause && a.Paused:
		return fmt.Errorf("the ablation is paused already%s", because(a.Reason))
	case name == CommandResume && !a.Paused:
		return errors.New("the ablation is not paused")
	}
	return nil
}

// obey carries a command out and passes it to the open runs.
func (a *ablating) obey(ctx workflow.Context, name string, c Command) string {
	now := workflow.Now(ctx)
	switch name {
	case CommandPause:
		a.Paused, a.Reason, a.By, a.Since = true, c.Reason, c.By, &now
	case CommandResume:
		a.Paused, a.Reason, a.By, a.Since = false, "", "", nil
	case CommandStop:
		a.stopping, a.Paused, a.Reason, a.By, a.Since = true, false, c.Reason, c.By, &now
	}
	told := 0
	for i, r := range a.runs {
		if a.States[i] != ablation.RunGoing {
			continue
		}
		c.Reason = cmp.Or(c.Reason, "the ablation "+a.Plan.ID+" was told so")
		// A run that has just ended hears nothing, and a person may have paused it before.
		if err := workflow.SignalExternalWorkflow(ctx, RunWorkflowID(r.RunID), "", name, c).Get(ctx, nil); err == nil {
			told++
		}
	}
	a.show(ctx)
	return fmt.Sprintf("%s: %d runs that go on were told", name, told)
}

// StartAblation starts an ablation. Errors: ErrRunning.
func StartAblation(ctx context.Context, c client.Client, in ablation.Input) error {
	_, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: AblateWorkflowID(in.ID), TaskQueue: QueueControl, WorkflowTaskTimeout: taskTimeout, StaticSummary: "ablation " + in.ID,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
	}, TypeAblate, in)
	var running *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &running) {
		return fmt.Errorf("ablation %s %w: see temper ablate status %s", in.ID, ErrRunning, in.ID)
	}
	if err != nil {
		return fmt.Errorf("start ablation %s: %w", in.ID, err)
	}
	return nil
}

// StatusOfAblation asks an ablation how its runs are.
func StatusOfAblation(ctx context.Context, c client.Client, id string) (s AblationStatus, err error) {
	v, err := c.QueryWorkflow(ctx, AblateWorkflowID(id), "", QueryStatus)
	if err == nil {
		err = v.Get(&s)
	}
	if err != nil {
		return s, fmt.Errorf("status of ablation %s: %w", id, err)
	}
	return s, nil
}

// CommandAblation gives an ablation pause, resume or stop, and returns its answer.
func CommandAblation(ctx context.Context, c client.Client, id, command string, arg Command) (answer string, err error) {
	handle, err := c.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: AblateWorkflowID(id), UpdateName: command, Args: []any{arg}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, &answer)
	}
	if err != nil {
		return "", fmt.Errorf("%s ablation %s: %w", command, id, err)
	}
	return answer, nil
}
