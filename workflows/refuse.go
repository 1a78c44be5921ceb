package workflows

import (
	"errors"
	"fmt"
	"unicode"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/internal/fault"
)

// refuse ends a workflow whose input or place is wrong.
func refuse(wrong error) error {
	if wrong == nil {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(wrong.Error(), string(fault.InvalidConfig), nil)
}

// refuseAlone refuses a stage that no run has started.
func refuseAlone(ctx workflow.Context) error {
	if workflow.GetInfo(ctx).ParentWorkflowExecution != nil {
		return nil
	}
	return refuse(fmt.Errorf("%s is a part of a run, which starts it: start %s instead, for example by temper run submit", TypeStage, TypeRun))
}

// checkWorkflowID reports a workflow id that makes no run id: two ids that differ in
// letters which a run id does not have would name the same run.
func checkWorkflowID(id string) error {
	for _, r := range id {
		if r > unicode.MaxASCII {
			return errors.New(`workflow id "` + id + `": the run is named after it, and a run id has A-Z, a-z, 0-9, '.', '_' and '-' only: start it under another workflow id, or say {"run_id": "..."}`)
		}
	}
	return nil
}
