package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"temper/internal/fault"
	"temper/internal/reward"
	"temper/internal/rl"
	"temper/sandbox"
	"temper/sandbox/judge"
)

// Reward is a reward function of the user's.
type Reward struct {
	File reward.File
	// Limits bound one job.
	Limits sandbox.Limits
	// Exclude takes a trajectory out of its group when the function fails for it. Without
	// it the failure ends everything.
	Exclude bool
}

// scoreByFunction has the reward function of the run judge a trajectory, however it
// stopped. The function runs as a verifier job: what the policy wrote is data. Errors:
// of kind UserCode when the function fails.
func (e *episode) scoreByFunction(ctx context.Context, t *rl.Trajectory) error {
	r, own := e.runner, e.runner.deps.Reward
	input, err := own.File.Input(e.spec.Problem, t)
	if err != nil {
		return fmt.Errorf("reward: %w", err)
	}
	if err := r.acquireJudge(ctx); err != nil {
		return err
	}
	defer r.releaseJudge()
	mark := rl.Seed(0, "reward", rl.Hash(own.File.SHA256), rl.Hash(input))
	job := judge.Function{
		ID: fmt.Sprintf("%s/reward/%08x", e.name, uint32(mark)), Run: e.spec.RunID + "/verify",
		Program: own.File.Program(), Fixture: own.File.Silence(""), Stdin: input, Limits: own.Limits,
	}
	var score judge.Score
	err = r.retry(ctx, func() (err error) {
		score, err = r.judge.Score(ctx, job)
		return err
	})
	var failure *judge.Failure
	switch {
	case errors.As(err, &failure) && own.Exclude:
		t.StopReason, t.Err = rl.StopRewardError, own.describe(failure)
		return nil
	case errors.As(err, &failure):
		return fault.Newf(fault.UserCode, "reward.path: %s, for %s", own.describe(failure), e.name)
	case err != nil:
		return fmt.Errorf("reward: %w", err)
	}
	t.Reward, t.Details = score.Reward, score.Details
	return nil
}

// maxReason bounds what a message takes over from the function.
const maxReason = 300

// describe names file, line and reason in one line. A failure without a line is the
// function's, which then stands for it.
func (own *Reward) describe(f *judge.Failure) string {
	line := f.Line
	if line < 1 || line > own.File.Lines() {
		line = own.File.Line
	}
	reason := strings.Join(strings.Fields(strings.ToValidUTF8(f.Reason[:min(maxReason, len(f.Reason))], "")), " ")
	return fmt.Sprintf("%s: %s %s", own.File.Place(line), own.File.Function, reason)
}

// isFailure reports whether the reward function is to blame.
func isFailure(err error) bool {
	var f *judge.Failure
	return errors.As(err, &f)
}
