package learner

import (
	"context"

	"temper/internal/run"
	"temper/trainer/checkpoint"
)

// Prepare brings the state of a run to a step (0 = after SFT): from the nearest
// checkpoint and the stored batches since.
func (t *Service) Prepare(ctx context.Context, in PublishInput) error {
	defer t.lock()()
	_, err := t.sessionAt(ctx, in)
	return t.settle(err)
}

// Republish makes the policy of a step again and stores it where it is not stored.
// Where files of it are damaged, use a store that does not show them.
func (t *Service) Republish(ctx context.Context, in PublishInput) (run.Policy, error) {
	defer t.lock()()
	s, err := t.sessionAt(ctx, in)
	if err != nil {
		return run.Policy{}, t.settle(err)
	}
	out, err := s.publish(ctx)
	return out, t.settle(err)
}

// sessionAt opens the session of a run at a step.
func (t *Service) sessionAt(ctx context.Context, in PublishInput) (*session, error) {
	s, err := t.open(ctx, in.Run)
	if err != nil {
		return nil, err
	}
	return s, t.seek(ctx, s.timetable().cursor(in.Step))
}

// Nearest is the step of the checkpoint from which a session would go to a step; -1
// for one among the supervised updates, or none.
func Nearest(saved []checkpoint.Entry, sftSteps, step int) int {
	nearest := -1
	for _, c := range saved {
		if at := c.Step - sftSteps; at >= 0 && at <= step {
			nearest = max(nearest, at)
		}
	}
	return nearest
}
