package openai

import (
	"strconv"

	"temper/internal/tokenizer"
)

// chatLogprobs are the log-probabilities of a chat's choice.
type chatLogprobs struct {
	Content []tokenLogprob `json:"content"`
}

type tokenLogprob struct {
	Token   string   `json:"token"`
	Logprob float32  `json:"logprob"` // nats, under the distribution that was sampled from
	Bytes   []int    `json:"bytes"`
	Top     []string `json:"top_logprobs"` // always empty
}

// completionLogprobs are those of a completion's choice.
type completionLogprobs struct {
	Tokens     []string  `json:"tokens"`
	Logprobs   []float32 `json:"token_logprobs"`
	TextOffset []int     `json:"text_offset"`
	Top        *[]string `json:"top_logprobs"` // always null
}

func newChatLogprobs(t *tokenizer.Tokenizer, p piece) *chatLogprobs {
	out := &chatLogprobs{Content: make([]tokenLogprob, len(p.Tokens))}
	for i, id := range p.Tokens {
		raw := t.Decode([]int32{id})
		bytes := make([]int, len(raw))
		for j := range len(raw) {
			bytes[j] = int(raw[j])
		}
		out.Content[i] = tokenLogprob{Token: tokenText(t, id), Logprob: p.Logprobs[i], Bytes: bytes, Top: []string{}}
	}
	return out
}

// newCompletionLogprobs counts offsets in bytes of the tokens' own texts, from offset on.
func newCompletionLogprobs(t *tokenizer.Tokenizer, p piece, offset int) *completionLogprobs {
	out := &completionLogprobs{Tokens: []string{}, Logprobs: []float32{}, TextOffset: []int{}}
	for i, id := range p.Tokens {
		text := tokenText(t, id)
		out.Tokens, out.Logprobs = append(out.Tokens, text), append(out.Logprobs, p.Logprobs[i])
		out.TextOffset = append(out.TextOffset, offset)
		offset += len(text)
	}
	return out
}

// tokenText is a token as valid UTF-8.
func tokenText(t *tokenizer.Tokenizer, id int32) string { return t.Text([]int32{id}) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
