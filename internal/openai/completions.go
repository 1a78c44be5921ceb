package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"temper/internal/chat/tokenizer"
)

// defaultCompletion is the number of tokens of a completion that names none.
const defaultCompletion = 16

// completionRequest is the body of POST /v1/completions.
type completionRequest struct {
	sampling
	Prompt   json.RawMessage `json:"prompt"`
	Logprobs *int            `json:"logprobs"`
	Echo     bool            `json:"echo"`
	BestOf   *int            `json:"best_of"`
	Suffix   *string         `json:"suffix"`
}

type completionChoice struct {
	Index        int                 `json:"index"`
	Text         string              `json:"text"`
	Logprobs     *completionLogprobs `json:"logprobs"`
	FinishReason *string             `json:"finish_reason"`
	TokenIDs     []int32             `json:"token_ids,omitempty"`
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	var body completionRequest
	err := s.limits.read(w, r, &body)
	if err == nil {
		err = s.model.checkModel(body.Model)
	}
	if err == nil {
		err = body.checkOwn(s.limits)
	}
	var prompts [][]int32
	if err == nil {
		prompts, err = s.prompts(body.Prompt)
	}
	if err != nil {
		write(w, err)
		return
	}
	a := s.newAnswer("cmpl", "text_completion", &body.sampling)
	var draws []draw
	for _, prompt := range prompts {
		for i := range *body.N {
			d, err := s.plan("prompt", prompt, &body.sampling, a.seed, i)
			if err != nil {
				write(w, err)
				return
			}
			draws = append(draws, d)
		}
	}
	if body.Stream {
		s.streamCompletion(r.Context(), w, a, &body, draws)
		return
	}
	outs, sampleErr := s.sampleAll(r.Context(), draws)
	if sampleErr != nil {
		write(w, asAPIError(sampleErr))
		return
	}
	choices := make([]completionChoice, len(outs))
	for i, out := range outs {
		choices[i] = body.choice(s.model.Tokenizer, i, out.piece, 0)
		choices[i].FinishReason = &out.finish
	}
	a.add(eachNth(draws, *body.N), outs)
	writeJSON(w, http.StatusOK, a.with(choices))
}

// checkOwn checks what chats do not have.
func (r *completionRequest) checkOwn(l Limits) *apiError {
	if r.MaxTokens == nil {
		n := defaultCompletion
		r.MaxTokens = &n
	}
	switch {
	case r.Echo:
		return invalid("echo", "this server does not repeat prompts")
	case r.Suffix != nil && *r.Suffix != "":
		return invalid("suffix", "this model does not fill in")
	}
	err := r.check(l)
	if err == nil && r.Logprobs != nil {
		err = r.askTop("logprobs", *r.Logprobs)
	}
	if err == nil && r.BestOf != nil && *r.BestOf != *r.N {
		err = invalid("best_of", "%d, want n, which is %d", *r.BestOf, *r.N)
	}
	return err
}

// prompts reads a text, token ids, or a list of either.
func (s *Server) prompts(raw json.RawMessage) ([][]int32, *apiError) {
	if !present(raw) {
		return nil, invalid("prompt", "is missing")
	}
	var texts []string
	var lists [][]int32
	if text, ok := as[string](raw); ok {
		texts = []string{text}
	} else if list, ok := as[[]string](raw); ok {
		texts = list
	} else if ids, ok := as[[]int32](raw); ok {
		lists = [][]int32{ids}
	} else if lists, ok = as[[][]int32](raw); !ok {
		return nil, invalid("prompt", "want a string, token ids, or a list of either")
	}
	for _, t := range texts {
		lists = append(lists, s.model.Tokenizer.PostProcess(s.model.Tokenizer.EncodeSpecial(strings.ToValidUTF8(t, "\uFFFD"))))
	}
	if len(lists) == 0 || len(lists) > s.limits.Prompts {
		return nil, invalid("prompt", "%d prompts, want 1 to %d", len(lists), s.limits.Prompts)
	}
	for _, l := range lists {
		if err := s.model.checkIDs("prompt", l); err != nil {
			return nil, err
		}
	}
	return lists, nil
}

// as decodes a value, if it has the form of T.
func as[T any](raw json.RawMessage) (T, bool) {
	var v T
	err := json.Unmarshal(raw, &v)
	return v, err == nil
}

// choice is a piece as a choice; offset is the length of the text before it.
func (r *completionRequest) choice(t *tokenizer.Tokenizer, i int, p piece, offset int) completionChoice {
	c := completionChoice{Index: i, Text: p.Text}
	if r.Logprobs != nil {
		c.Logprobs = newCompletionLogprobs(t, p, offset)
	}
	if r.ReturnTokenIDs {
		c.TokenIDs = p.Tokens
	}
	return c
}

func (s *Server) streamCompletion(ctx context.Context, w http.ResponseWriter, a *answer, r *completionRequest, draws []draw) {
	st := newStream(w, a, "text_completion", r.StreamOptions != nil && r.StreamOptions.IncludeUsage)
	outs, err := s.sampleStreams(ctx, draws, func(i int) (func(piece) error, func(outcome) error) {
		offset := 0
		emit := func(p piece) error {
			c := r.choice(s.model.Tokenizer, i, p, offset)
			offset += len(p.Text)
			return st.send(c)
		}
		return emit, func(out outcome) error { return st.send(completionChoice{Index: i, FinishReason: &out.finish}) }
	})
	if err != nil {
		st.fail(err)
		return
	}
	a.add(eachNth(draws, *r.N), outs)
	st.close()
}

// eachNth are the draws of the first choices: the prompt of several choices counts once.
func eachNth(draws []draw, n int) []draw {
	var out []draw
	for i := 0; i < len(draws); i += n {
		out = append(out, draws[i])
	}
	return out
}
