package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
)

// runWorkers are the workers that do the work of a run: its own on a cluster, or the ones
// that all runs share.
type runWorkers struct {
	at   *progress
	room *clusterRoom
}

// onTrainer returns the options of an activity of the run's trainer.
func (w *runWorkers) onTrainer(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithPriority(onTrainer(ctx, w.room.queues(), summary), priority(w.at.plan.Priority))
}

// onRollouts returns the options of an activity of the run's rollout workers.
func (w *runWorkers) onRollouts(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithPriority(onRollouts(ctx, w.room.queues(), summary), priority(w.at.plan.Priority))
}

// publish makes a policy of the state after SFT, or of the checkpoint where a fork begins.
func (w *runWorkers) publish(ctx workflow.Context, step int) error {
	var trainer *activities.Trainer
	return workflow.ExecuteActivity(w.onTrainer(ctx, fmt.Sprintf("publish policy %d", step)), trainer.PublishPolicy,
		activities.PublishInput{Run: w.at.ref, Step: step}).Get(ctx, &w.at.policy)
}
