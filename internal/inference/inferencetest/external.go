package inferencetest

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"temper/internal/inference"
	"temper/internal/rl"
)

// External is an engine under the second level of the suite: one whose draws nothing
// forces, so that equal requests may have different answers.
type External struct {
	Engine inference.Engine
	// Prompt is a context that the engine can continue; at least 4 tokens.
	Prompt []int32
	// Vocab is the number of token ids.
	Vocab int
	// Logprobs returns the log-probabilities of ids[from:], each given the ids before it,
	// under the policy that the engine serves.
	Logprobs func(ids []int32, from int, temperature float32) ([]float32, error)
	// Tolerance is the largest difference of a log-probability that rounding explains.
	Tolerance float64
}

// RunExternal checks what an engine promises whose bits are not promised: records,
// stops, limits, versions, cuts, and log-probabilities of the policy itself. make is
// called once for each subtest.
func RunExternal(t *testing.T, make func(t *testing.T) External) {
	t.Helper()
	for name, check := range map[string]func(*testing.T, External){
		"record is complete":            func(t *testing.T, s External) { checkRecord(t, s.subject()) },
		"log-probabilities are ours":    checkLogprobs,
		"company does not matter":       checkLogprobsInCompany,
		"stop tokens end and are kept":  checkStopSet,
		"seeds differ":                  checkSpread,
		"version is checked and told":   func(t *testing.T, s External) { checkVersion(t, s.subject()) },
		"what does not fit is refused":  func(t *testing.T, s External) { checkContext(t, s.subject()) },
		"ids beyond the vocabulary":     checkBadIDs,
		"the end of ctx ends it":        func(t *testing.T, s External) { checkCancel(t, s.subject()) },
		"a cut keeps what was sampled":  checkLooseCut,
		"sessions are names, not state": checkLooseSessions,
	} {
		t.Run(name, func(t *testing.T) { check(t, make(t)) })
	}
}

func (s External) subject() Subject {
	return Subject{Engine: s.Engine, Prompt: s.Prompt, Vocab: s.Vocab, Tolerance: s.Tolerance}
}

func (s External) request(seed uint64) inference.Request { return s.subject().request(seed) }

// wrong returns why log-probabilities of a generation are not those of the policy.
func (s External) wrong(t *testing.T, req inference.Request, gen inference.Generation) {
	t.Helper()
	temperature := req.Temperature
	if temperature == 0 {
		temperature = 1 // greedy ones are reported so
	}
	want, err := s.Logprobs(slices.Concat(req.Tokens, gen.Tokens), len(req.Tokens), temperature)
	if err != nil {
		t.Error(err)
		return
	}
	if len(gen.Logprobs) != len(want) {
		t.Errorf("%d log-probabilities of %d tokens", len(gen.Logprobs), len(want))
		return
	}
	for i, got := range gen.Logprobs {
		if d := math.Abs(float64(got) - float64(want[i])); !(d <= s.Tolerance) {
			t.Errorf("temperature %g: log-probability %d is %v, want %v within %g", req.Temperature, i, got, want[i], s.Tolerance)
		}
	}
}

func checkLogprobs(t *testing.T, s External) {
	for _, temperature := range []float32{1, 0, 2, 0.5} {
		req := s.request(3)
		req.Temperature = temperature
		s.wrong(t, req, generate(t, s.subject(), req))
	}
}

func checkLogprobsInCompany(t *testing.T, s External) {
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() {
			req := s.request(uint64(100 + i))
			req.Tokens, req.MaxTokens = s.Prompt[:len(s.Prompt)-i%3], 1+(i*5)%length
			gen, err := s.Engine.Generate(t.Context(), req)
			if err != nil {
				t.Errorf("request %d in company: %v", i, err)
				return
			}
			s.wrong(t, req, gen)
		})
	}
	wg.Wait()
}

// checkStopSet makes half of the vocabulary stop tokens: whatever is drawn, the first
// of them is the last token.
func checkStopSet(t *testing.T, s External) {
	var stop []int32
	for id := int32(0); int(id) < s.Vocab; id += 2 {
		stop = append(stop, id)
	}
	stopped := 0
	for seed := range uint64(8) {
		req := s.request(seed)
		req.Stop = stop
		gen := generate(t, s.subject(), req)
		for i, id := range gen.Tokens {
			if isStop := id%2 == 0; isStop != (gen.Finish == rl.FinishStop && i == len(gen.Tokens)-1) {
				t.Errorf("seed %d: tokens %v finished by %q, want the first even one to be the last", seed, gen.Tokens, gen.Finish)
				break
			}
		}
		if gen.Finish == rl.FinishStop {
			stopped++
		}
		s.wrong(t, req, gen)
	}
	if stopped == 0 {
		t.Error("none of eight generations met a stop token, which half of all are")
	}
}

func checkSpread(t *testing.T, s External) {
	first := generate(t, s.subject(), s.request(0)).Tokens
	for seed := uint64(1); seed < 8; seed++ {
		if !slices.Equal(generate(t, s.subject(), s.request(seed)).Tokens, first) {
			return
		}
	}
	t.Error("eight seeds gave one generation")
}

func checkBadIDs(t *testing.T, s External) {
	for _, id := range []int32{-1, int32(s.Vocab), math.MaxInt32} {
		req := s.request(1)
		req.Tokens = slices.Concat(s.Prompt, []int32{id})
		if _, err := s.Engine.Generate(t.Context(), req); err == nil || errors.Is(err, inference.ErrOverloaded) {
			t.Errorf("id %d of a vocabulary of %d: error %v", id, s.Vocab, err)
		}
	}
	generate(t, s.subject(), s.request(1)) // the server lives
}

// checkLooseCut continues a cut generation from its tokens.
func checkLooseCut(t *testing.T, s External) {
	for _, after := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		req := s.request(4)
		req.MaxTokens = 4 * length
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(after, func() { cancel(inference.ErrCut) })
		if after == 0 {
			cancel(inference.ErrCut)
		}
		gen, err := s.Engine.Generate(ctx, req)
		timer.Stop()
		cancel(nil)
		if err != nil {
			t.Fatal(err)
		}
		n := len(gen.Tokens)
		if len(gen.Logprobs) != n || n < req.MaxTokens && gen.Finish != rl.FinishAbort {
			t.Fatalf("cut after %s: %d tokens, %d log-probabilities, finish %q", after, n, len(gen.Logprobs), gen.Finish)
		}
		if n == req.MaxTokens {
			continue
		}
		s.wrong(t, req, gen)
		rest := req
		rest.Tokens, rest.MaxTokens = slices.Concat(req.Tokens, gen.Tokens), req.MaxTokens-n
		more := generate(t, s.subject(), rest)
		if len(more.Tokens) != rest.MaxTokens {
			t.Errorf("cut after %s: the rest has %d tokens, want %d", after, len(more.Tokens), rest.MaxTokens)
		}
		s.wrong(t, rest, more)
	}
}

func checkLooseSessions(t *testing.T, s External) {
	s.Engine.Release("never seen")
	req := s.request(5)
	req.Session, req.MaxTokens = "session", length/2
	for range 3 {
		gen := generate(t, s.subject(), req)
		s.wrong(t, req, gen)
		req.Tokens = slices.Concat(req.Tokens, gen.Tokens, s.Prompt[:3])
	}
	s.Engine.Release("session")
	s.Engine.Release("session")
	s.wrong(t, req, generate(t, s.subject(), req))
}
