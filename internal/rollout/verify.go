package rollout

import (
	"context"
	"fmt"
	"strings"

	"temper/internal/env"
	"temper/internal/reward"
	"temper/internal/rl"
	"temper/internal/tool"
)

// noteAnswer looks for answers in the text of a turn outside its tool calls.
func (e *episode) noteAnswer(content string) {
	said, tags := reward.Find(e.answerMode(), content)
	if tags > 0 || said != "" {
		e.answer, e.answerTags = strings.Clone(said), e.answerTags+tags
	}
}

// answerMode returns how the answer of an episode is found and compared. Rules for formulas
// do not apply to other environments.
func (e *episode) answerMode() reward.Mode {
	mode := e.runner.deps.Answer
	_, formulas := e.environment.(env.Checker)
	switch {
	case mode != "" && (formulas || mode != reward.Integer && mode != reward.Released):
		return mode
	case mode == "" && e.runner.deps.Format.Boxed():
		return reward.Paper
	default:
		return reward.Tag
	}
}

// score sets the reward of a finished episode. The slot of the trajectory is already free,
// so that others are sampled while a verifier job waits. An error means that the answer
// could not be judged.
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

// isCorrect asks the environment, and compares formulas where the environment cannot decide.
func (e *episode) isCorrect(ctx context.Context, answer string) (bool, error) {
	checker, ok := e.environment.(env.Checker)
	if !ok {
		return e.environment.Verify(e.spec.Problem, answer), nil
	}
	if mode := e.answerMode(); mode == reward.Integer || mode == reward.Released {
		return e.compare(ctx, answer)
	}
	switch verdict := checker.Check(e.spec.Problem, answer); verdict {
	case env.Right, env.Wrong:
		return verdict == env.Right, nil
	case env.Open:
		return e.compare(ctx, answer)
	default:
		return false, fmt.Errorf("environment %s has no verdict %q", checker.Name(), verdict)
	}
}

// compare compares formulas. That takes up to some 100 ms of a processor, so it waits
// for its turn.
func (e *episode) compare(ctx context.Context, text string) (bool, error) {
	r := e.runner
	if err := r.acquireJudge(ctx); err != nil {
		return false, err
	}
	defer r.releaseJudge()
	verdict, err := reward.Compare(e.answerMode(), text, e.spec.Problem.Answer)
	if err != nil {
		return false, fmt.Errorf("verify: %w: the answer of problem %s: %w", tool.ErrFixture, e.spec.Problem.ID, err)
	}
	return verdict.Correct, nil
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
