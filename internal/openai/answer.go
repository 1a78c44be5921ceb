package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// answer holds the fields that all answers to a request share.
type answer struct {
	id, object, model string
	created           int64
	seed              uint64
	usage             usage
}

// usage counts tokens.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

// body is an answer on the wire, whole or a part of a stream.
type body struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices any    `json:"choices"`
	Usage   *usage `json:"usage,omitempty"`
}

func (s *Server) newAnswer(prefix, object string, p *sampling) *answer {
	a := &answer{
		id: fmt.Sprintf("%s-%016x", prefix, randomSeed()), object: object,
		model: s.model.Name, created: time.Now().Unix(), seed: s.seed(),
	}
	if p.Seed != nil {
		a.seed = uint64(*p.Seed)
	}
	return a
}

// add counts the tokens of prompts, each once, and of what was sampled.
func (a *answer) add(prompts []draw, outs []outcome) {
	for _, d := range prompts {
		a.usage.Prompt += len(d.prompt)
	}
	for _, o := range outs {
		a.usage.Completion += len(o.Tokens)
	}
	a.usage.Total = a.usage.Prompt + a.usage.Completion
}

func (a *answer) with(choices any) body {
	return body{ID: a.id, Object: a.object, Created: a.created, Model: a.model, Choices: choices, Usage: &a.usage}
}

// callID names the calls of a choice.
func callID(id string, choice int) string {
	_, random, _ := strings.Cut(id, "-")
	return random + "_" + strconv.Itoa(choice)
}

// sampleAll samples all choices side by side. The first error ends the others.
func (s *Server) sampleAll(ctx context.Context, draws []draw) ([]outcome, error) {
	outs := make([]outcome, len(draws))
	g, ctx := errgroup.WithContext(ctx)
	for i, d := range draws {
		g.Go(func() (err error) {
			outs[i], err = s.sample(ctx, d, nil)
			return err
		})
	}
	return outs, g.Wait()
}

// sampleStreams samples all choices side by side and gives the parts of each to its own
// emit. The first error ends the others.
func (s *Server) sampleStreams(ctx context.Context, draws []draw, choice func(i int) (emit func(piece) error, end func(outcome) error)) ([]outcome, error) {
	outs := make([]outcome, len(draws))
	g, ctx := errgroup.WithContext(ctx)
	for i, d := range draws {
		emit, end := choice(i)
		g.Go(func() (err error) {
			if outs[i], err = s.sample(ctx, d, emit); err != nil {
				return err
			}
			return end(outs[i])
		})
	}
	return outs, g.Wait()
}

// stream sends the parts of an answer as server-sent events. The first part decides the
// status: an error before it is a whole answer. All choices share the stream.
type stream struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	a       *answer
	object  string
	counted bool // whether the last part has the usage
	open    bool
}

func newStream(w http.ResponseWriter, a *answer, object string, counted bool) *stream {
	return &stream{w: w, a: a, object: object, counted: counted}
}

// send sends one choice.
func (st *stream) send(choice any) error { return st.part([]any{choice}, nil) }

func (st *stream) part(choices []any, u *usage) error {
	return st.event(body{ID: st.a.id, Object: st.object, Created: st.a.created, Model: st.a.model, Choices: choices, Usage: u})
}

// event writes a value at once.
func (st *stream) event(v any) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.open {
		st.w.Header().Set("Content-Type", "text/event-stream")
		st.w.Header().Set("Cache-Control", "no-cache")
		st.w.WriteHeader(http.StatusOK)
		st.open = true
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(st.w, "data: %s\n\n", data); err != nil {
		return err
	}
	return http.NewResponseController(st.w).Flush()
}

// close sends the usage where it was asked for, and the mark of the end. Each choice has
// said before why it ended.
func (st *stream) close() {
	if st.counted && st.part([]any{}, &st.a.usage) != nil {
		return // the client has gone
	}
	_, _ = fmt.Fprint(st.w, "data: [DONE]\n\n")
	_ = http.NewResponseController(st.w).Flush()
}

func (st *stream) opened() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.open
}

// fail ends the stream with an error. One that has sent nothing has a status for it.
func (st *stream) fail(err error) {
	e := asAPIError(err)
	if !st.opened() {
		write(st.w, e)
		return
	}
	_ = st.event(map[string]*apiError{"error": e})
}
