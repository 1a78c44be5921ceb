package workflows

import "go.temporal.io/sdk/worker"

// Register adds every workflow to a worker. The name of the function is the
// registered type.
func Register(r worker.WorkflowRegistry) {
	r.RegisterWorkflow(RLRun)
	r.RegisterWorkflow(RLStage)
	r.RegisterWorkflow(EvaluateRun)
	r.RegisterWorkflow(Retrain)
	r.RegisterWorkflow(Cluster)
	r.RegisterWorkflow(Ablate)
}
