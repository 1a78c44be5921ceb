package openai

import (
	"slices"
	"strconv"

	"temper/internal/chat/tokenizer"
	"temper/internal/inference"
)

// chatLogprobs are the log-probabilities of a chat's choice.
type chatLogprobs struct {
	Content []tokenLogprob `json:"content"`
}

type tokenLogprob struct {
	likelyToken
	Top []likelyToken `json:"top_logprobs"` // the likeliest first; empty where none were asked for
}

// likelyToken is a token with its log-probability.
type likelyToken struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"` // nats, under the distribution that was sampled from
	Bytes   []int   `json:"bytes"`
}

// completionLogprobs are the log-probabilities of a completion's choice.
type completionLogprobs struct {
	Tokens     []string  `json:"tokens"`
	Logprobs   []float32 `json:"token_logprobs"`
	TextOffset []int     `json:"text_offset"`
	// Top has the likeliest tokens by their texts, and the one that was sampled; null where
	// only that one was asked for. Of tokens with one text the likeliest is there.
	Top []map[string]float32 `json:"top_logprobs"`
}

func newChatLogprobs(t *tokenizer.Tokenizer, p piece) *chatLogprobs {
	out := &chatLogprobs{Content: make([]tokenLogprob, len(p.Tokens))}
	for i, id := range p.Tokens {
		entry := tokenLogprob{likelyToken: newLikelyToken(t, id, p.Logprobs[i]), Top: []likelyToken{}}
		if p.Top != nil {
			for _, c := range p.Top[i] {
				entry.Top = append(entry.Top, newLikelyToken(t, c.ID, c.Logprob))
			}
		}
		out.Content[i] = entry
	}
	return out
}

func newLikelyToken(t *tokenizer.Tokenizer, id int32, logprob float32) likelyToken {
	raw := t.Decode([]int32{id})
	bytes := make([]int, len(raw))
	for j := range len(raw) {
		bytes[j] = int(raw[j])
	}
	return likelyToken{Token: tokenText(t, id), Logprob: logprob, Bytes: bytes}
}

// askTop has the n likeliest tokens reported at each position.
func (p *sampling) askTop(param string, n int) *apiError {
	if n < 0 || n > inference.MaxTopLogprobs {
		return invalid(param, "%d, want 0 to %d", n, inference.MaxTopLogprobs)
	}
	p.top = n
	return nil
}

// newCompletionLogprobs counts offsets in bytes of the tokens' own texts, from offset on.
func newCompletionLogprobs(t *tokenizer.Tokenizer, p piece, offset int) *completionLogprobs {
	out := &completionLogprobs{Tokens: []string{}, Logprobs: []float32{}, TextOffset: []int{}}
	for i, id := range p.Tokens {
		text := tokenText(t, id)
		out.Tokens, out.Logprobs = append(out.Tokens, text), append(out.Logprobs, p.Logprobs[i])
		out.TextOffset = append(out.TextOffset, offset)
		if p.Top != nil {
			likely := map[string]float32{}
			for _, c := range slices.Backward(p.Top[i]) {
				likely[tokenText(t, c.ID)] = c.Logprob
			}
			likely[text] = p.Logprobs[i]
			out.Top = append(out.Top, likely)
		}
		offset += len(text)
	}
	return out
}

// tokenText is a token as valid UTF-8.
func tokenText(t *tokenizer.Tokenizer, id int32) string { return t.Text([]int32{id}) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
