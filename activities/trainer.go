package activities

import (
	"context"

	"temper/internal/run"
)

// TrainSFT makes the supervised updates From+1 to To. A retry resumes from the
// newest checkpoint.
func (t *Trainer) TrainSFT(ctx context.Context, in TrainSFTInput) (run.SFTResult, error) {
	ctx, stop := heartbeat(ctx, t.Learner.Doing)
	defer stop()
	out, err := t.Learner.TrainSFT(ctx, in)
	return out, toTemporal(err)
}

// PublishPolicy publishes the weights after SFT as policy 0, and those that a
// fork begins with; any other policy is looked up.
// Errors: NotFound for a policy that the run does not have yet.
func (t *Trainer) PublishPolicy(ctx context.Context, in PublishInput) (run.Policy, error) {
	ctx, stop := heartbeat(ctx, t.Learner.Doing)
	defer stop()
	out, err := t.Learner.Publish(ctx, in)
	return out, toTemporal(err)
}

// TrainStep applies the batch of a step exactly once and publishes the policy
// that comes of it.
func (t *Trainer) TrainStep(ctx context.Context, in TrainStepInput) (run.Trained, error) {
	ctx, stop := heartbeat(ctx, t.Learner.Doing)
	defer stop()
	out, err := t.Learner.TrainStep(ctx, in)
	return out, toTemporal(err)
}

// SaveCheckpoint saves the state after a step. One that is there stays.
func (t *Trainer) SaveCheckpoint(ctx context.Context, in SaveCheckpointInput) error {
	ctx, stop := heartbeat(ctx, t.Learner.Doing)
	defer stop()
	return toTemporal(t.Learner.SaveCheckpoint(ctx, in))
}
