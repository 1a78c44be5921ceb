package chat

import (
	"errors"
	"fmt"
	"slices"
)

// Transcript is the growing record of one conversation as tokens. It is not
// safe for concurrent use. Thousands of them grow at once: the tokens lie in one
// piece, since each turn hands them to the engine, and what was sampled stays in the
// pieces in which it came.
type Transcript struct {
	format       *Format
	tokens       []int32
	sampled      []sampledPart
	promptTokens int
}

// sampledPart is one generation.
type sampledPart struct {
	start    int // of its tokens
	logprobs []float32
}

// Tokens returns all tokens. The caller must not change them; appending to the slice
// does not affect the transcript.
func (t *Transcript) Tokens() []int32 { return slices.Clip(t.tokens) }

// LossMask makes the mask that is true exactly on sampled tokens.
func (t *Transcript) LossMask() []bool {
	mask := make([]bool, len(t.tokens))
	for _, p := range t.sampled {
		for i := range p.logprobs {
			mask[p.start+i] = true
		}
	}
	return mask
}

// Logprobs makes the list of the log-probabilities of sampled tokens, 0 elsewhere.
func (t *Transcript) Logprobs() []float32 {
	out := make([]float32, len(t.tokens))
	for _, p := range t.sampled {
		copy(out[p.start:], p.logprobs)
	}
	return out
}

// PromptTokens is the number of tokens before the first sampled one.
func (t *Transcript) PromptTokens() int { return t.promptTokens }

// ResponseTokens is the number of sampled and tool tokens.
func (t *Transcript) ResponseTokens() int { return len(t.tokens) - t.promptTokens }

// AppendSampled adds the tokens of one generation with their log-probabilities. It
// keeps the latter: the caller must not change them.
func (t *Transcript) AppendSampled(tokens []int32, logprobs []float32) error {
	if len(tokens) != len(logprobs) {
		return fmt.Errorf("append sampled: %d tokens with %d logprobs", len(tokens), len(logprobs))
	}
	if spare := cap(logprobs) - len(logprobs); spare > len(logprobs)/8 {
		logprobs = append(make([]float32, 0, len(logprobs)), logprobs...)
	}
	t.sampled = append(t.sampled, sampledPart{len(t.tokens), logprobs})
	t.appendTokens(tokens)
	return nil
}

// Restore adds what an earlier conversation has after the same prompt: its tokens, and the
// log-probabilities of those that mask says were sampled. All three begin with the prompt,
// and the transcript has to be a new one. It keeps logprobs.
func (t *Transcript) Restore(tokens []int32, logprobs []float32, mask []bool) error {
	n := t.promptTokens
	if len(t.tokens) != n || len(logprobs) != len(tokens) || len(mask) != len(tokens) || len(tokens) < n || !slices.Equal(tokens[:n], t.tokens) {
		return fmt.Errorf("restore a conversation of %d tokens: it does not begin with this prompt of %d", len(tokens), n)
	}
	for from := n; from < len(tokens); {
		to := from + 1
		for to < len(tokens) && mask[to] == mask[from] {
			to++
		}
		if mask[from] {
			t.sampled = append(t.sampled, sampledPart{from, logprobs[from:to:to]})
		}
		from = to
	}
	t.appendTokens(tokens[n:])
	return nil
}

// appendTokens adds tokens and leaves little spare room, unlike append: most of what
// it would leave is never used.
func (t *Transcript) appendTokens(tokens []int32) {
	if need := len(t.tokens) + len(tokens); need > cap(t.tokens) {
		t.tokens = append(make([]int32, 0, need+need/8), t.tokens...)
	}
	t.tokens = append(t.tokens, tokens...)
}

// ErrTooLong means that a tool response does not fit the token budget.
var ErrTooLong = errors.New("tool response does not fit")

// AppendTool adds the tool responses to the calls of the last turn and the prefix
// of the next assistant turn. When that leaves no room for a further token below
// maxResponseTokens, it adds nothing and returns ErrTooLong.
func (t *Transcript) AppendTool(responses []string, maxResponseTokens int) error {
	added := make([]Message, len(responses))
	for i, r := range responses {
		added[i] = Message{Role: RoleTool, Content: r}
	}
	tokens, err := t.format.dialect.textBetweenTurns(added)
	if err != nil {
		return err
	}
	if t.ResponseTokens()+len(tokens) >= maxResponseTokens {
		return ErrTooLong
	}
	t.appendTokens(tokens)
	return nil
}
