package workflows

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/run/ablation"
)

const (
	// runsPerExecution is the number of runs after which an ablation continues as new. A run
	// is about 20 events. A lower number would break open executions that have begun more.
	runsPerExecution = 25
	// takenPause lies between two attempts at a run that another workflow holds still, and
	// takenAttempts bounds them: an ablation that was ended leaves runs that need a moment to
	// save and end.
	takenPause    = 10 * time.Second
	takenAttempts = 30
)

const ablatePrefix = "ablate/"

// AblateWorkflowID is the workflow id of an ablation.
func AblateWorkflowID(id string) string { return ablatePrefix + id }

// Ablate makes the runs of several arms over several seeds, a stated number at a time, and
// stores the results as series, table and picture. Its input is written by a person, see
// ablation.Input. A failed run is reported, and the others continue. Its runs are ordinary
// ones: a repeated ablation finds the complete runs and resumes the others.
func Ablate(ctx workflow.Context, in ablation.Input) (ablation.Outcome, error) {
	a := &ablating{in: in}
	out, err := a.execute(ctx)
	awaitHandlers(ctx)
	var again *workflow.ContinueAsNewError
	switch {
	case err == nil:
		return out, nil
	case errors.As(err, &again):
		return ablation.Outcome{}, err
	case canceled(ctx, err):
		return ablation.Outcome{}, temporal.NewCanceledError()
	default:
		return ablation.Outcome{}, asFailure(err)
	}
}

type ablating struct {
	in ablation.Input
	ablation.Progress
	runs []ablation.Planned
	// begun counts the runs that this execution has taken on.
	begun    int
	stopping bool
	over     bool
}

func (a *ablating) execute(ctx workflow.Context) (ablation.Outcome, error) {
	if err := refuse(errors.Join(a.in.CheckKeys(), checkWorkflowID(workflow.GetInfo(ctx).WorkflowExecution.ID))); err != nil {
		return ablation.Outcome{}, err
	}
	if err := a.listen(ctx); err != nil {
		return ablation.Outcome{}, err
	}
	if err := a.plan(ctx); err != nil {
		return ablation.Outcome{}, err
	}
	a.show(ctx)
	crew := workflow.NewWaitGroup(ctx)
	var failures []error
	for range max(1, a.in.Parallel) {
		crew.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer crew.Done()
			if err := a.work(ctx); err != nil {
				failures = append(failures, err)
			}
		})
	}
	crew.Wait(ctx)
	if err := errors.Join(failures...); err != nil {
		return ablation.Outcome{}, err
	}
	if _, left := a.next(); left && !a.stopping {
		awaitHandlers(ctx)
		return ablation.Outcome{}, a.again(ctx)
	}
	a.over = true
	var control *activities.Control
	var out ablation.Outcome
	err := doControl(ctx, "store the figures", control.CollectAblation, activities.CollectAblationInput{ID: a.Plan.ID}, &out)
	out.Stopped = a.stopping
	a.show(ctx)
	return out, err
}

// plan makes the plan, or takes that of the execution before.
func (a *ablating) plan(ctx workflow.Context) error {
	if a.in.Continued != nil {
		a.runs = a.Plan.Runs() // the rest was taken over before anything could arrive
		return nil
	}
	var control *activities.Control
	var plan ablation.Plan
	if err := doControl(ctx, "plan: arms and seeds", control.PlanAblation, a.in, &plan); err != nil {
		return err
	}
	a.Plan, a.runs = plan, plan.Runs()
	a.States, a.Reasons = make([]string, len(a.runs)), make([]string, len(a.runs))
	for i := range a.States {
		a.States[i] = ablation.RunWaiting
	}
	return nil
}

// again hands what is known to the next execution.
func (a *ablating) again(ctx workflow.Context) error {
	next := ablation.Input{ID: a.in.ID, Parallel: a.in.Parallel, Priority: a.in.Priority, Continued: &a.Progress}
	return workflow.NewContinueAsNewError(ctx, Ablate, next)
}

// next is the first run that waits for its turn.
func (a *ablating) next() (int, bool) {
	i := slices.Index(a.States, ablation.RunWaiting)
	return i, i >= 0
}

// work makes runs one after another until none is left for this execution.
func (a *ablating) work(ctx workflow.Context) error {
	for {
		if err := workflow.Await(ctx, func() bool { return !a.Paused || a.stopping }); err != nil {
			return err
		}
		i, left := a.next()
		if !left || a.stopping || a.begun >= runsPerExecution {
			return nil
		}
		a.begun++
		a.States[i] = ablation.RunGoing
		a.show(ctx)
		state, reason, err := a.makeRun(ctx, a.runs[i])
		if err != nil {
			return err
		}
		if err := a.end(ctx, i, state, reason); err != nil {
			return err
		}
	}
}

// end notes how a run ended.
func (a *ablating) end(ctx workflow.Context, i int, state, reason string) error {
	a.States[i], a.Reasons[i] = state, shorten(reason)
	a.show(ctx)
	var control *activities.Control
	r := a.runs[i]
	return doControl(ctx, fmt.Sprintf("run %s: %s", r.RunID, state), control.RecordAblationRun,
		ablation.Ended{ID: a.Plan.ID, RunID: r.RunID, State: state, Reason: reason, At: workflow.Now(ctx)}, nil)
}

// makeRun makes one run to its end and says how that was. An error ends the ablation.
func (a *ablating) makeRun(ctx workflow.Context, r ablation.Planned) (state, reason string, err error) {
	for range takenAttempts {
		var out RunResult
		found, err := a.try(ctx, r, &out)
		var taken *temporal.ChildWorkflowExecutionAlreadyStartedError
		switch {
		case ctx.Err() != nil:
			return "", "", temporal.NewCanceledError()
		case errors.As(err, &taken):
			if err := workflow.NewTimerWithOptions(ctx, takenPause, workflow.TimerOptions{Summary: "wait for run " + r.RunID + " of another workflow"}).Get(ctx, nil); err != nil {
				return "", "", err
			}
			continue
		case err != nil:
			return ablation.RunFailed, failureText(err), nil
		case found:
			return ablation.RunFound, "", nil
		case out.Restarted != "":
			return ablation.RunStopped, fmt.Sprintf("run %s goes on instead: it is no run of this ablation", out.Restarted), nil
		case out.Stopped:
			return ablation.RunStopped, "it was stopped", nil
		default:
			return ablation.RunDone, "", nil
		}
	}
	return ablation.RunFailed, fmt.Sprintf("another workflow is still going on with it: wait for its end or stop it (temper run stop %s), and submit the ablation again", r.RunID), nil
}

// try looks what the store has of the run, and makes what is missing. It reports whether
// the run was whole.
func (a *ablating) try(ctx workflow.Context, r ablation.Planned, out *RunResult) (found bool, err error) {
	var control *activities.Control
	var have ablation.Stored
	if err := doControl(ctx, "look for run "+r.RunID, control.FindAblationRun, activities.FindAblationRunInput{ID: a.Plan.ID, RunID: r.RunID}, &have); err != nil {
		return false, err
	}
	if have == ablation.StoredDone {
		return true, nil
	}
	input, err := a.Plan.Input(r, a.in.Priority)
	if err != nil {
		return false, err
	}
	if have == ablation.StoredBegun { // it resumes as it is stored
		input.Config, input.Set, input.Priority = nil, nil, 0
	}
	child := asChild(ctx, RunWorkflowID(r.RunID), fmt.Sprintf("run %s of ablation %s: arm %s, seed %d", r.RunID, a.Plan.ID, r.Arm, r.Seed), temporal.SearchAttributes{})
	options := workflow.GetChildWorkflowOptions(child)
	// When the ablation ends without having a say, its runs save and write their summaries.
	options.ParentClosePolicy = enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL
	options.Priority = priority(a.in.Priority)
	return false, workflow.ExecuteChildWorkflow(workflow.WithChildOptions(child, options), RLRun, input).Get(ctx, out)
}

// show shows in the web UI how the runs are.
func (a *ablating) show(ctx workflow.Context) {
	s := a.status()
	rows := []string{fmt.Sprintf("**%s**%s, %s", s.State, escapeCell(byWhom(a.Reason, a.By)), s.counts()), "", "| run | state | |", "|---|---|---|"}
	for _, r := range s.Runs {
		rows = append(rows, fmt.Sprintf("| [`%s`](%s) | %s | %s |", r.RunID, pageURL(workflow.GetInfo(ctx).Namespace, RunWorkflowID(r.RunID)), r.State, escapeCell(r.Reason)))
	}
	workflow.SetCurrentDetails(ctx, strings.Join(rows, "\n"))
}
