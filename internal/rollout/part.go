package rollout

import (
	"errors"
	"fmt"
	"slices"

	"temper/internal/rl"
)

// A trajectory that several policy versions sample is made in parts. Its tokens alone
// decide where it is cut; see Part.Until. Each part feeds the engine with all tokens before
// it, so that each token has the log-probability of its own version under the whole
// context.

// resumePart restores the episode to the place where the previous part was cut.
func (e *episode) resumePart() error {
	if e.spec.Part == nil || e.spec.Part.Before == nil {
		return nil
	}
	before := e.spec.Part.Before
	if before.StopReason != rl.StopCut || before.Seed != e.spec.TrajectorySeed() {
		return errors.New("go on with a trajectory: it is another one, or was not cut")
	}
	if err := e.transcript.Restore(before.Tokens, before.RolloutLogprobs, before.LossMask); err != nil {
		return fmt.Errorf("go on with a trajectory: %w", err)
	}
	e.turns = slices.Clone(before.Turns)
	e.answer, e.answerTags = before.Answer, before.AnswerTags
	e.session.Restore(e.spec.Part.Cells)
	if e.spans = slices.Clone(before.Spans); len(e.spans) == 0 {
		e.spans = []rl.Span{{From: before.PromptTokens, Version: before.PolicyVersion}}
	}
	return nil
}

// noteSpan notes that the version which samples now has sampled from a token on.
func (e *episode) noteSpan(from int) {
	if n := len(e.spans); n > 0 && e.spans[n-1].Version == e.version {
		return
	}
	e.spans = append(e.spans, rl.Span{From: from, Version: e.version})
}

// firstVersion is the version that sampled first, or would have.
func (e *episode) firstVersion() int64 {
	if len(e.spans) > 0 {
		return e.spans[0].Version
	}
	return e.version
}

// severalSpans returns the spans of a trajectory that two or more versions sampled,
// otherwise nil.
func (e *episode) severalSpans() []rl.Span {
	if len(e.spans) < 2 {
		return nil
	}
	return e.spans
}

// announce returns the tokens that a part begins with and how many may follow. prompt and
// limit belong to the whole trajectory.
func (p *Part) announce(prompt, limit int) (have, left int) {
	have = prompt
	if p.Before != nil {
		have = len(p.Before.Tokens)
	}
	if p.Until > 0 {
		limit = min(limit, p.Until)
	}
	return have, limit - (have - prompt)
}
