package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"temper/internal/inference"
)

// generateRequest is the body of POST /inference/v1/generate, vLLM's request for token ids
// in and out. The members that only say how vLLM works are read and ignored.
type generateRequest struct {
	RequestID      string         `json:"request_id"`
	TokenIDs       []int32        `json:"token_ids"`
	Sampling       generateParams `json:"sampling_params"`
	Model          string         `json:"model"`
	Stream         bool           `json:"stream"`
	OutputMode     string         `json:"output_mode"`
	ReturnTokenIDs bool           `json:"return_token_ids"`
	CacheSalt      string         `json:"cache_salt"`
	Priority       int            `json:"priority"`
}

type generateParams struct {
	sampling
	StopTokenIDs []int32 `json:"stop_token_ids"`
	// IgnoreEOS leaves out the tokens that end the model's turns.
	IgnoreEOS  bool  `json:"ignore_eos"`
	Logprobs   *int  `json:"logprobs"` // how many of the likeliest to report beside the sampled token
	Detokenize *bool `json:"detokenize"`
}

// generateChoice is a choice of the answer.
type generateChoice struct {
	Index        int               `json:"index"`
	FinishReason string            `json:"finish_reason"`
	StopReason   *int32            `json:"stop_reason"` // the token of stop_token_ids that ended it
	TokenIDs     []int32           `json:"token_ids"`
	Logprobs     *generateLogprobs `json:"logprobs"`
	Versions     []generateVersion `json:"weight_versions"`
}

type generateLogprobs struct {
	Content []generateLogprob `json:"content"`
}

type generateLogprob struct {
	likelyID
	Top []likelyID `json:"top_logprobs"` // the likeliest first
}

type likelyID struct {
	TokenID int32   `json:"token_id"`
	Logprob float32 `json:"logprob"`
}

// generateVersion is a span of tokens that one policy sampled.
type generateVersion struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

// check refuses what cannot be done.
func (r *generateRequest) check(s *Server) *apiError {
	p := &r.Sampling
	if p.MaxTokens == nil {
		n := defaultCompletion
		p.MaxTokens = &n
	}
	switch {
	case len(r.TokenIDs) == 0:
		return invalid("token_ids", "want at least one")
	case r.Stream:
		return invalid("stream", "this request has no stream; use /v1/completions")
	case r.OutputMode != "" && r.OutputMode != "tokens":
		return invalid("output_mode", "%s, want tokens", quoted(r.OutputMode))
	case r.Priority != 0:
		return invalid("priority", "%d, want 0: requests are served in their order", r.Priority)
	case present(p.Stop):
		return invalid("stop", "this request knows no text: want stop_token_ids")
	}
	if err := s.model.checkIDs("token_ids", r.TokenIDs); err != nil {
		return err
	}
	if err := s.model.checkIDs("stop_token_ids", p.StopTokenIDs); err != nil {
		return err
	}
	if err := p.check(s.limits); err != nil || p.Logprobs == nil {
		return err
	}
	return p.askTop("logprobs", *p.Logprobs)
}

func (s *Server) generate(w http.ResponseWriter, r *http.Request) {
	var body generateRequest
	err := s.limits.read(w, r, &body)
	if err == nil {
		err = s.model.checkModel(body.Model)
	}
	if err == nil {
		err = body.check(s)
	}
	if err != nil {
		write(w, err)
		return
	}
	p := &body.Sampling
	a := s.newAnswer("generate-tokens", "", &p.sampling)
	if body.RequestID == "" {
		body.RequestID = a.id
	}
	end := slices.Clone(p.StopTokenIDs)
	if !p.IgnoreEOS {
		end = append(end, s.model.Stop...)
	}
	draws := make([]draw, *p.N)
	for i := range draws {
		if draws[i], err = s.plan("token_ids", body.TokenIDs, &p.sampling, a.seed, i); err != nil {
			write(w, err)
			return
		}
		draws[i].end, draws[i].own = end, true
	}
	ctx, done := s.running.begin(r.Context(), body.RequestID)
	defer done()
	outs, sampleErr := s.sampleAll(ctx, draws)
	if sampleErr != nil {
		write(w, asAPIError(sampleErr))
		return
	}
	choices := make([]generateChoice, len(outs))
	for i, out := range outs {
		choices[i] = p.choice(i, out)
	}
	a.add(draws[:1], outs)
	answer := map[string]any{"request_id": body.RequestID, "model": s.model.Name, "choices": choices, "usage": a.usage}
	if body.ReturnTokenIDs {
		answer["prompt_token_ids"] = body.TokenIDs
	}
	writeJSON(w, http.StatusOK, answer)
}

func (p *generateParams) choice(i int, out outcome) generateChoice {
	c := generateChoice{
		Index: i, FinishReason: out.finish, TokenIDs: append([]int32{}, out.Tokens...),
		Versions: []generateVersion{{strconv.FormatInt(out.version, 10), 0, len(out.Tokens)}},
	}
	if n := len(out.Tokens); out.finish == finishStop && slices.Contains(p.StopTokenIDs, out.Tokens[n-1]) {
		c.StopReason = &out.Tokens[n-1]
	}
	if p.Logprobs != nil {
		c.Logprobs = &generateLogprobs{Content: make([]generateLogprob, len(out.Tokens))}
		for j, id := range out.Tokens {
			entry := generateLogprob{likelyID: likelyID{id, out.Logprobs[j]}, Top: []likelyID{}}
			if out.Top != nil {
				for _, t := range out.Top[j] {
					entry.Top = append(entry.Top, likelyID{t.ID, t.Logprob})
				}
			}
			c.Logprobs.Content[j] = entry
		}
	}
	return c
}

// running are the requests under way by their names.
type running struct {
	mu     sync.Mutex
	byName map[string]context.CancelCauseFunc
}

// begin names a request. A name that is under way already belongs to the earlier one.
func (r *running) begin(ctx context.Context, name string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.byName[name]; taken {
		return ctx, func() { cancel(nil) }
	}
	if r.byName == nil {
		r.byName = map[string]context.CancelCauseFunc{}
	}
	r.byName[name] = cancel
	return ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.byName, name)
		cancel(nil)
	}
}

// abort ends requests: they answer with what was sampled. Unknown names are ignored, as
// vLLM does; no names are refused, where vLLM would end all requests.
func (r *running) abort(limits Limits) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var body struct {
			RequestIDs []string `json:"request_ids"`
		}
		err := limits.read(w, req, &body)
		if err == nil && len(body.RequestIDs) == 0 {
			err = invalid("request_ids", "want at least one")
		}
		if err != nil {
			write(w, err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, name := range body.RequestIDs {
			if cancel, ok := r.byName[name]; ok {
				cancel(inference.ErrCut)
			}
		}
		writeJSON(w, http.StatusOK, json.RawMessage("{}"))
	}
}
