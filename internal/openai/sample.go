package openai

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"temper/internal/inference"
	"temper/internal/rl"
)

// Reasons why a choice ended, in OpenAI's words.
const (
	finishStop   = "stop"
	finishLength = "length"
	finishTools  = "tool_calls"
	finishAbort  = "abort" // by the caller, of /inference/v1/generate
)

const (
	// streamChunk is the number of tokens that a stream asks of the engine at a time. The
	// engine keeps the cache in between, so a smaller number costs little.
	streamChunk = 8
	// stopChunk is the tokens that a request with stop strings samples at a time. Tokens behind
	// a stop string are discarded.
	stopChunk = 32
)

// draw tells how to sample one choice.
type draw struct {
	prompt      []int32
	maxTokens   int
	temperature float32
	seed        uint64
	stops       []string
	sampler     *inference.Sampler
	top         int // likeliest tokens to report at each position
	chunk       int
	// end holds the tokens that end the choice, instead of the model's.
	end []int32
	// own means that end counts, also when it is empty.
	own bool
}

// piece is the sampled text since the piece before.
type piece struct {
	// Text is certain: no stop string can take it back.
	Text     string
	Tokens   []int32
	Logprobs []float32
	Top      [][]inference.TokenLogprob // nil where none were asked for
}

// outcome is a choice that has ended.
type outcome struct {
	piece
	finish  string
	version int64 // of the policy
}

// plan makes the draw of choice i of a request for a prompt.
func (s *Server) plan(param string, prompt []int32, p *sampling, base uint64, i int) (draw, *apiError) {
	most := s.model.Engine.MaxContext()
	room := most - len(prompt)
	if len(prompt) == 0 {
		return draw{}, invalid(param, "no tokens")
	}
	if room < 1 {
		return draw{}, tooLong(param, "%d tokens, and the model's context is %d, with at least one for the answer", len(prompt), most)
	}
	d := draw{prompt: prompt, maxTokens: room, temperature: p.temperature(s.model), seed: base, stops: p.stops, sampler: p.sampler, top: p.top}
	if p.MaxTokens != nil {
		if *p.MaxTokens > room {
			return draw{}, tooLong("max_tokens", "%d behind a prompt of %d tokens; the model's context is %d", *p.MaxTokens, len(prompt), most)
		}
		d.maxTokens = *p.MaxTokens
	}
	if i > 0 {
		d.seed = rl.Seed(base, "choice", uint64(i))
	}
	d.chunk = d.maxTokens
	switch {
	case p.Stream:
		d.chunk = streamChunk
	case len(p.stops) > 0:
		d.chunk = stopChunk
	}
	return d, nil
}

// sample samples one choice. It hands each piece to emit, unless that is nil, and returns
// all of them as one. An error of emit ends it.
func (s *Server) sample(ctx context.Context, d draw, emit func(piece) error) (outcome, error) {
	span, reason := s.meter.begin(len(d.prompt)), "abort"
	defer func() { span.end(reason) }()
	stop := s.model.Stop
	if d.own {
		stop = d.end
	}
	session := fmt.Sprintf("openai/%016x/%d", randomSeed(), time.Now().UnixNano())
	defer s.model.Engine.Release(session)
	req := inference.Request{
		Tokens: append(make([]int32, 0, len(d.prompt)+d.maxTokens), d.prompt...),
		Stop:   stop, Temperature: d.temperature, Seed: d.seed, Version: -1, Session: session,
		Sampler: d.sampler, TopLogprobs: d.top,
	}
	t := newText(s.model.Tokenizer, stop, d.stops)
	out := outcome{finish: finishLength}
	for len(out.Tokens) < d.maxTokens && out.finish == finishLength {
		req.MaxTokens = min(d.chunk, d.maxTokens-len(out.Tokens))
		gen, err := s.model.Engine.Generate(ctx, req)
		if err != nil {
			return outcome{}, err
		}
		if err := d.check(gen); err != nil {
			return outcome{}, err
		}
		if gen.Finish == rl.FinishAbort {
			out.finish = finishAbort
		}
		span.sampled(len(gen.Tokens))
		req.Version, out.version = gen.Version, gen.Version // the whole answer is of one policy
		kept, ended := t.push(gen.Tokens)
		if ended || gen.Finish == rl.FinishStop {
			out.finish = finishStop
		}
		last := out.finish != finishLength || len(out.Tokens)+kept >= d.maxTokens
		p := piece{Text: t.take(last), Tokens: gen.Tokens[:kept], Logprobs: gen.Logprobs[:kept]}
		if d.top > 0 {
			p.Top = gen.Top[:kept]
		}
		req.Tokens = append(req.Tokens, p.Tokens...)
		out.Text += p.Text
		out.Tokens, out.Logprobs = append(out.Tokens, p.Tokens...), append(out.Logprobs, p.Logprobs...)
		out.Top = append(out.Top, p.Top...)
		if emit != nil {
			if err := emit(p); err != nil {
				return outcome{}, err
			}
		}
	}
	reason = out.finish
	return out, nil
}

// check refuses a generation that is none, or that the engine sampled otherwise.
func (d *draw) check(gen inference.Generation) error {
	switch {
	case gen.Finish != rl.FinishAbort && len(gen.Tokens) == 0, len(gen.Logprobs) != len(gen.Tokens):
		return fmt.Errorf("%d tokens with %d log-probabilities", len(gen.Tokens), len(gen.Logprobs))
	case d.sampler != nil && len(gen.Kept) != len(gen.Tokens):
		return errors.New("the engine ignores top_p, top_k and min_p")
	case d.top > 0 && len(gen.Top) != len(gen.Tokens):
		return errors.New("the engine reports no likeliest tokens: ask for no top_logprobs")
	}
	return nil
}

// heldBack is the length of the longest end of text that begins one of the marks.
func heldBack(text string, marks []string) int {
	longest := 0
	for _, m := range marks {
		for n := min(len(m)-1, len(text)); n > longest; n-- {
			if strings.HasSuffix(text, m[:n]) {
				longest = n
				break
			}
		}
	}
	return longest
}
