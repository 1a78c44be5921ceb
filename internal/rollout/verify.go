package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"temper/internal/env"
	"temper/internal/reward"
	"temper/internal/rl"
	"temper/internal/tool"
	"temper/sandbox/judge"
)

// noteAnswer looks for answers in the text of a turn outside its tool calls.
func (e *episode) noteAnswer(content string) {
	extract := reward.ExtractAnswer
	if e.runner.deps.Format.Boxed() {
		extract = reward.ExtractBoxed
	}
	if answer, tags := extract(content); tags > 0 {
		e.answer, e.answerTags = strings.Clone(answer), e.answerTags+tags
	}
}

// score sets the reward of a finished episode. The slot of the
// trajectory is free by then, so that others are sampled while a verifier job waits
// for its turn. An error means that nobody could judge the answer.
func (e *episode) score(ctx context.Context, t *rl.Trajectory) error {
	t.Answer, t.AnswerTags = e.answer, e.answerTags
	if e.runner.deps.Reward != nil {
		return e.scoreByFunction(ctx, t)
	}
	if t.Answer == "" || t.StopReason != rl.StopAnswered {
		return nil // no verdict could earn anything
	}
	correct, err := e.isCorrect(ctx, t.Answer)
	if err != nil {
		return err
	}
	t.Reward = reward.Score(t.StopReason, correct)
	return nil
}

// isCorrect asks the environment, and the judge where the environment cannot decide.
func (e *episode) isCorrect(ctx context.Context, answer string) (bool, error) {
	checker, ok := e.environment.(env.Checker)
	if !ok {
		return e.environment.Verify(e.spec.Problem, answer), nil
	}
	switch verdict := checker.Check(e.spec.Problem, answer); verdict {
	case env.Right, env.Wrong:
		return verdict == env.Right, nil
	case env.Open:
		return e.runVerifierJob(ctx, answer)
	default:
		return false, fmt.Errorf("environment %s has no verdict %q", checker.Name(), verdict)
	}
}

// runVerifierJob runs a verifier job through the executor of the tool calls.
func (e *episode) runVerifierJob(ctx context.Context, answer string) (bool, error) {
	r := e.runner
	if err := r.acquireJudge(ctx); err != nil {
		return false, err
	}
	defer r.releaseJudge()
	truth := e.spec.Problem.Answer
	job := judge.Math{ID: e.verifyID(answer), Run: e.spec.RunID + "/verify", Answer: answer, Truth: truth}
	var verdict judge.Verdict
	starved := 0
	err := r.retry(ctx, func() error {
		var err error
		verdict, err = r.judge.Do(ctx, job)
		switch {
		case errors.Is(err, judge.ErrStarved):
			// The sandbox would repeat its answer to the first name. A verdict does not
			// depend on the name of its job.
			starved++
			job.ID = fmt.Sprintf("%s/%d", e.verifyID(answer), starved)
		case errors.Is(err, judge.ErrInvalid):
			return fmt.Errorf("%w: the answer of problem %s: %w", tool.ErrFixture, e.spec.Problem.ID, err)
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("verify: %w", err)
	}
	return verdict.Equal, nil
}

// acquireJudge waits for the slot of a verifier job.
func (r *Runner) acquireJudge(ctx context.Context) error {
	select {
	case r.judging <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Runner) releaseJudge() { <-r.judging }

// verifyID names the verifier job of the trajectory. It holds a hash of what is
// compared, for the same reason as callID.
func (e *episode) verifyID(answer string) string {
	return fmt.Sprintf("%s/verify/%08x", e.name, uint32(rl.Seed(0, "verify", rl.Hash(answer), rl.Hash(e.spec.Problem.Answer))))
}
