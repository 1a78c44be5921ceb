// Package inferencetest owns what proves a inference.Engine: fakes to test its users
// with, and the conformance suite that every implementation runs.
package inferencetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"temper/internal/inference"
	"temper/internal/rl"
)

// Reply returns the tokens that a scripted engine samples after a request's tokens. It must
// be a pure function; the engine cuts them at MaxTokens and at a stop token.
type Reply func(req inference.Request) []int32

// Script is an Engine that plays a Reply. Its exported fields are set before use.
type Script struct {
	Reply   Reply
	Serving int64 // the version it serves
	Context int   // MaxContext; 0 means 1<<20
	// Fail, when not nil, is asked before each generation with the number of
	// calls so far; an error of it is returned instead.
	Fail func(call int, req inference.Request) error

	mu       sync.Mutex
	requests []inference.Request
	released []string
}

var _ inference.Engine = (*Script)(nil)

// Generate implements inference.Engine.
func (s *Script) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	s.mu.Lock()
	call := len(s.requests)
	kept := req
	kept.Tokens = slices.Clone(req.Tokens)
	s.requests = append(s.requests, kept)
	s.mu.Unlock()
	if errors.Is(context.Cause(ctx), inference.ErrCut) {
		return inference.Generation{Finish: rl.FinishAbort, Version: s.Serving}, nil
	}
	if err := ctx.Err(); err != nil {
		return inference.Generation{}, err
	}
	if s.Fail != nil {
		if err := s.Fail(call, req); err != nil {
			return inference.Generation{}, err
		}
		if errors.Is(context.Cause(ctx), inference.ErrCut) { // meanwhile
			return inference.Generation{Finish: rl.FinishAbort, Version: s.Serving}, nil
		}
	}
	if req.Version >= 0 && req.Version != s.Serving {
		return inference.Generation{}, fmt.Errorf("serving %d, want %d: %w", s.Serving, req.Version, inference.ErrStaleVersion)
	}
	if size := len(req.Tokens) + req.MaxTokens; req.MaxTokens < 1 || size > s.MaxContext() {
		return inference.Generation{}, fmt.Errorf("request of %d+%d tokens, max_context is %d", len(req.Tokens), req.MaxTokens, s.MaxContext())
	}
	return s.play(req), nil
}

func (s *Script) play(req inference.Request) inference.Generation {
	g := inference.Generation{Finish: rl.FinishLength, Version: s.Serving}
	for _, id := range s.Reply(req) {
		if len(g.Tokens) == req.MaxTokens {
			break
		}
		g.Tokens = append(g.Tokens, id)
		g.Logprobs = append(g.Logprobs, fakeLogprob(id, len(req.Tokens)+len(g.Tokens)))
		if req.Sampler != nil {
			g.Kept = append(g.Kept, inference.Kept{Count: 1})
		}
		if n := req.TopLogprobs; n > 0 {
			top := make([]inference.TokenLogprob, n)
			for i := range top {
				top[i] = inference.TokenLogprob{ID: id + int32(i), Logprob: g.Logprobs[len(g.Logprobs)-1] - float32(i)}
			}
			g.Top = append(g.Top, top)
		}
		if slices.Contains(req.Stop, id) {
			g.Finish = rl.FinishStop
			break
		}
	}
	return g
}

// fakeLogprob differs from token to token, so that a mixed-up record shows.
func fakeLogprob(id int32, pos int) float32 {
	return -float32(1+(int(id)*31+pos*17)%997) / 1000
}

// Release implements inference.Engine.
func (s *Script) Release(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = append(s.released, session)
}

// Version implements inference.Engine.
func (s *Script) Version() int64 { return s.Serving }

// MaxContext implements inference.Engine.
func (s *Script) MaxContext() int {
	if s.Context == 0 {
		return 1 << 20
	}
	return s.Context
}

// Requests returns all requests so far, in order of arrival.
func (s *Script) Requests() []inference.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Released returns the sessions released so far.
func (s *Script) Released() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.released)
}

// Turns returns a Reply that plays one turn after another: which one follows
// from how many end tokens the context holds after the prompt, so that it is a
// pure function. promptEnds is the number of end tokens of the prompt, and each
// tool response adds one end token.
func Turns(end int32, promptEnds int, turns ...[]int32) Reply {
	return func(req inference.Request) []int32 {
		ends := 0
		for _, id := range req.Tokens {
			if id == end {
				ends++
			}
		}
		turn := (ends - promptEnds) / 2
		if turn >= len(turns) {
			return []int32{end}
		}
		return turns[turn]
	}
}

// Resumed wraps a Reply so that it continues in the middle of its reply if the request's
// tokens end with the beginning of the reply. after lists the tokens behind which a turn
// may begin.
func Resumed(reply Reply, after ...int32) Reply {
	return func(req inference.Request) []int32 {
		for s := 1; s < len(req.Tokens); s++ {
			if !slices.Contains(after, req.Tokens[s-1]) {
				continue
			}
			said, before := req.Tokens[s:], req
			before.Tokens = req.Tokens[:s]
			if whole := reply(before); len(said) < len(whole) && slices.Equal(said, whole[:len(said)]) {
				return whole[len(said):]
			}
		}
		return reply(req)
	}
}

// Random returns a Reply over ids 0..vocab-1 that draws each token by
// rl.Uniform, as an engine with equal logits would; temperature 0 gives a fixed
// function of position.
func Random(vocab int) Reply {
	return func(req inference.Request) []int32 {
		ids := make([]int32, req.MaxTokens)
		for i := range ids {
			pos := len(req.Tokens) + i
			seed := req.Seed
			if req.Temperature == 0 {
				seed = 0
			}
			ids[i] = int32(math.Floor(float64(rl.Uniform(seed, pos)) * float64(vocab)))
		}
		return ids
	}
}
