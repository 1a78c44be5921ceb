package chat

import (
	"errors"
	"fmt"
	"slices"
)

// Transcript is the growing record of one conversation as tokens. It is not
// safe for concurrent use.
type Transcript struct {
	format       *Format
	tokens       []int32
	mask         []bool
	logprobs     []float32
	promptTokens int
}

// Tokens returns all tokens. The caller must not change them; appending to the slice
// does not affect the transcript.
func (t *Transcript) Tokens() []int32 { return slices.Clip(t.tokens) }

// LossMask is true exactly on sampled tokens; the caller must not change it.
func (t *Transcript) LossMask() []bool { return t.mask }

// Logprobs are the log-probabilities of sampled tokens, 0 elsewhere.
func (t *Transcript) Logprobs() []float32 { return t.logprobs }

// PromptTokens is the number of tokens before the first sampled one.
func (t *Transcript) PromptTokens() int { return t.promptTokens }

// ResponseTokens is the number of sampled and tool tokens.
func (t *Transcript) ResponseTokens() int { return len(t.tokens) - t.promptTokens }

// AppendSampled adds the tokens of one generation with their log-probabilities.
func (t *Transcript) AppendSampled(tokens []int32, logprobs []float32) error {
	if len(tokens) != len(logprobs) {
		return fmt.Errorf("append sampled: %d tokens with %d logprobs", len(tokens), len(logprobs))
	}
	t.tokens = append(t.tokens, tokens...)
	t.logprobs = append(t.logprobs, logprobs...)
	for range tokens {
		t.mask = append(t.mask, true)
	}
	return nil
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
	t.appendMasked(tokens)
	return nil
}

// appendMasked adds tokens that nobody sampled.
func (t *Transcript) appendMasked(tokens []int32) {
	t.tokens = append(t.tokens, tokens...)
	t.mask = append(t.mask, make([]bool, len(tokens))...)
	t.logprobs = append(t.logprobs, make([]float32, len(tokens))...)
}
