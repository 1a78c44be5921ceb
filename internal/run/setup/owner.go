package setup

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Claim is who opens a run, and what the server of its workflow can do.
type Claim struct {
	// Owner is the workflow execution that gets the run id, Workflow and Namespace
	// are where the server has it.
	Owner, Workflow, Namespace string
	// Find asks the server for an execution. Without it every other owner counts as
	// open, so that nothing is taken from anybody.
	Find func(context.Context, run.Owner) (Execution, error)
	// Visits is set for a workflow that reads a stored run and does not make it.
	Visits bool
	// SearchAttributes says whether the server knows the attributes of runs.
	SearchAttributes bool
	// At is when, for the list of runs.
	At time.Time
}

// Execution is what the server says of a workflow execution.
type Execution struct {
	Open bool
	// First is the first execution of its chain: what follows by reset, retry, cron
	// and continue-as-new has the same.
	First string
	// Workflow is its workflow id.
	Workflow string
	// State is how it is, in words.
	State string
}

func (by Claim) owner() run.Owner {
	return run.Owner{Execution: by.Owner, Workflow: by.Workflow, Namespace: by.Namespace}
}

func (by Claim) find(ctx context.Context, who run.Owner) (Execution, error) {
	who.Namespace = cmp.Or(who.Namespace, by.Namespace)
	if by.Find == nil {
		return Execution{Open: who.Execution != by.Owner, Workflow: who.Workflow}, nil
	}
	return by.Find(ctx, who)
}

// takeOwnership makes the claimer the owner of a stored run, unless it is already, and
// completes the plan of a taken-over run by its amendments. A run belongs to one execution
// until that has ended. A later execution of the same chain may continue it, and so may a
// caller that asks for it: by take_over, or by naming no configuration under the same
// workflow id. Errors: RunExists.
func (by Claim) takeOwnership(ctx context.Context, store blob.Store, opened *run.Opened, in run.Input) error {
	owner, ref, err := run.OwnerOf(ctx, store, *opened)
	if err != nil {
		return err
	}
	if owner.Execution != by.Owner {
		if owner, err = by.replace(ctx, store, owner, ref, in); err != nil {
			return err
		}
	}
	if owner.Why == "" {
		return nil // it belongs to who opened it
	}
	event := run.Event{
		Run: run.Ref{RunID: opened.RunID, Config: opened.Config}, Time: owner.Since, Kind: run.EventTakeOver, Text: owner.Why, ID: "owner/" + owner.Execution,
	}
	if err := run.LogEvent(ctx, store, event); err != nil {
		return err
	}
	opened.Plan, err = run.Reopen(ctx, store, opened.RunID)
	return err
}

// replace stores the claimer as the owner of a run of another execution.
func (by Claim) replace(ctx context.Context, store blob.Store, owner run.Owner, ref blob.Ref, in run.Input) (run.Owner, error) {
	theirs, err := by.find(ctx, owner)
	if err != nil {
		return owner, err
	}
	owner.Workflow = theirs.Workflow
	why, err := by.mayTake(ctx, owner, theirs, in, store.Locate(artifact.Layout{RunID: in.RunID}.Dir()))
	if err != nil {
		return owner, err
	}
	owner = by.owner()
	owner.Since, owner.Why = by.At, why
	data, err := json.Marshal(owner)
	if err == nil {
		_, err = store.Swap(ctx, artifact.Layout{RunID: in.RunID}.Owner(), ref, data) // fails if another process was faster
	}
	return owner, err
}

// mayTake returns why the claimer may continue a run of another execution.
func (by Claim) mayTake(ctx context.Context, owner run.Owner, theirs Execution, in run.Input, place string) (why string, err error) {
	mine, err := by.find(ctx, by.owner())
	if err != nil {
		return "", err
	}
	was := fmt.Sprintf("workflow %s (execution %s)", cmp.Or(owner.Workflow, "of an unknown id"), owner.Execution)
	same := owner.Workflow == by.Workflow && (owner.Namespace == "" || owner.Namespace == by.Namespace)
	switch {
	case same && mine.First != "" && (mine.First == theirs.First || mine.First == owner.Execution):
		return fmt.Sprintf("execution %s goes on instead of %s, whose chain it continues", by.Owner, was), nil
	case configured(in), in.Fork != nil:
		return "", fault.Newf(fault.RunExists, "run id %q exists already at %s, of %s: choose another", in.RunID, place, was)
	case theirs.Open:
		return "", fault.Newf(fault.RunExists, "run %s belongs to %s, which is still open: wait for its end or stop it (temper run stop %s)", in.RunID, was, in.RunID)
	case same, in.TakeOver:
		return fmt.Sprintf("workflow %s (execution %s) goes on; %s %s", by.Workflow, by.Owner, was, theirs.State), nil
	default:
		return "", fault.Newf(fault.RunExists, "run %s belongs to %s, which %s: say {\"run_id\": %q, \"take_over\": true} to go on with it, or start workflow %s again",
			in.RunID, was, theirs.State, in.RunID, owner.Workflow)
	}
}

// resume returns the plan of a stored run for an input with nothing but its id.
func resume(ctx context.Context, store blob.Store, in run.Input, by Claim) (run.Plan, error) {
	plan, err := run.Reopen(ctx, store, in.RunID)
	if err != nil || by.Visits {
		return plan, err
	}
	if len(in.Set) > 0 || in.Seed != nil || in.Priority != 0 {
		return run.Plan{}, fault.Newf(fault.InvalidConfig, "run %s is stored, and goes on as it is: leave out set, seed and priority, or fork it", in.RunID)
	}
	opened, _, err := run.ReadOpened(ctx, store, in.RunID)
	if err == nil {
		err = by.takeOwnership(ctx, store, &opened, in)
	}
	return plan, err
}
