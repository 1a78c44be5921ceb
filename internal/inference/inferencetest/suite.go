package inferencetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/inference"
	"temper/internal/rl"
)

// Subject is an engine under the conformance suite.
type Subject struct {
	Engine inference.Engine
	// Prompt is a context that the engine can continue; at least 4 tokens.
	Prompt []int32
	// Vocab is the number of token ids; sampled ids are below it.
	Vocab int
	// Tolerance is the difference allowed between logprobs of the same token in
	// different company; 0 for an engine that is exact.
	Tolerance float64
}

// length of the generations of the suite; the context must hold it twice.
const length = 12

// Run checks that an engine keeps the contract of inference.Engine. make is called
// once for each subtest.
func Run(t *testing.T, make func(t *testing.T) Subject) {
	t.Helper()
	for name, check := range map[string]func(*testing.T, Subject){
		"record is complete":                     checkRecord,
		"same request, same answer":              checkIdempotent,
		"stop token ends and is kept":            checkStop,
		"draws belong to positions":              checkPositions,
		"seeds differ, greedy does not":          checkSeeds,
		"company does not matter":                checkCompany,
		"sessions change nothing":                checkSessions,
		"version is checked and told":            checkVersion,
		"a context that does not fit is refused": checkContext,
		"the end of ctx ends a generation":       checkCancel,
		"a cut generation keeps what it has":     checkCut,
	} {
		t.Run(name, func(t *testing.T) { check(t, make(t)) })
	}
}

func (s Subject) request(seed uint64) inference.Request {
	return inference.Request{Tokens: s.Prompt, MaxTokens: length, Temperature: 1, Seed: seed, Version: -1}
}

func generate(t *testing.T, s Subject, req inference.Request) inference.Generation {
	t.Helper()
	gen, err := s.Engine.Generate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return gen
}

// same compares tokens exactly and logprobs within the tolerance.
func (s Subject) same(got, want inference.Generation) error {
	if diff := cmp.Diff(got.Tokens, want.Tokens); diff != "" {
		return fmt.Errorf("tokens: got -, want +\n%s", diff)
	}
	if len(got.Logprobs) != len(want.Logprobs) {
		return fmt.Errorf("%d logprobs, want %d", len(got.Logprobs), len(want.Logprobs))
	}
	for i := range got.Logprobs {
		if d := math.Abs(float64(got.Logprobs[i] - want.Logprobs[i])); !(d <= s.Tolerance) {
			return fmt.Errorf("logprob %d is %v, want %v", i, got.Logprobs[i], want.Logprobs[i])
		}
	}
	return nil
}

func checkRecord(t *testing.T, s Subject) {
	for _, n := range []int{1, length} {
		req := s.request(1)
		req.MaxTokens = n
		gen := generate(t, s, req)
		if len(gen.Tokens) != n || len(gen.Logprobs) != n || gen.Finish != rl.FinishLength {
			t.Fatalf("%d tokens, %d logprobs, finish %q; want %d and length", len(gen.Tokens), len(gen.Logprobs), gen.Finish, n)
		}
		for i, id := range gen.Tokens {
			lp := float64(gen.Logprobs[i])
			if id < 0 || int(id) >= s.Vocab || math.IsNaN(lp) || math.IsInf(lp, 0) || lp > 1e-5 {
				t.Errorf("token %d: id %d with logprob %v", i, id, lp)
			}
		}
	}
}

func checkIdempotent(t *testing.T, s Subject) {
	for seed := range uint64(3) {
		if err := s.same(generate(t, s, s.request(seed)), generate(t, s, s.request(seed))); err != nil {
			t.Error(err)
		}
	}
}

// checkStop makes a token that will be sampled the stop token.
func checkStop(t *testing.T, s Subject) {
	free := generate(t, s, s.request(2))
	stop := free.Tokens[length/2]
	want := 0
	for free.Tokens[want] != stop {
		want++
	}
	req := s.request(2)
	req.Stop = []int32{stop}
	gen := generate(t, s, req)
	if gen.Finish != rl.FinishStop || len(gen.Tokens) != want+1 {
		t.Fatalf("finish %q after %d tokens, want stop after %d", gen.Finish, len(gen.Tokens), want+1)
	}
	free.Tokens, free.Logprobs = free.Tokens[:want+1], free.Logprobs[:want+1]
	if err := s.same(gen, free); err != nil {
		t.Error(err)
	}
}

// checkPositions: a generation cut in two continues as if it had not been cut.
func checkPositions(t *testing.T, s Subject) {
	whole := generate(t, s, s.request(3))
	const cut = length / 3
	req := s.request(3)
	req.Tokens = append(append([]int32{}, s.Prompt...), whole.Tokens[:cut]...)
	req.MaxTokens = length - cut
	rest := inference.Generation{Tokens: whole.Tokens[cut:], Logprobs: whole.Logprobs[cut:]}
	if err := s.same(generate(t, s, req), rest); err != nil {
		t.Error(err)
	}
}

func checkSeeds(t *testing.T, s Subject) {
	distinct := map[string]bool{}
	for seed := range uint64(8) {
		distinct[fmt.Sprint(generate(t, s, s.request(seed)).Tokens)] = true
	}
	if len(distinct) < 2 {
		t.Error("eight seeds gave one generation")
	}
	greedy := s.request(1)
	greedy.Temperature = 0
	other := greedy
	other.Seed = 2
	if err := s.same(generate(t, s, greedy), generate(t, s, other)); err != nil {
		t.Errorf("greedy depends on the seed: %v", err)
	}
}

// checkCompany compares each request alone with the same one among others of
// other lengths.
func checkCompany(t *testing.T, s Subject) {
	requests := make([]inference.Request, 9)
	want := make([]inference.Generation, len(requests))
	for i := range requests {
		requests[i] = s.request(uint64(100 + i))
		requests[i].Tokens = s.Prompt[:len(s.Prompt)-i%3]
		requests[i].MaxTokens = 1 + (i*5)%length
		want[i] = generate(t, s, requests[i])
	}
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			gen, err := s.Engine.Generate(t.Context(), requests[i])
			if err == nil {
				err = s.same(gen, want[i])
			}
			if err != nil {
				t.Errorf("request %d in company: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// checkSessions plays two turns with a session and without one.
func checkSessions(t *testing.T, s Subject) {
	play := func(session string) (first, second inference.Generation) {
		req := s.request(5)
		req.Session = session
		req.MaxTokens = length / 2
		first = generate(t, s, req)
		req.Tokens = append(append([]int32{}, s.Prompt...), first.Tokens...)
		req.Tokens = append(req.Tokens, s.Prompt[:3]...) // as a tool response would
		return first, generate(t, s, req)
	}
	first, second := play("")
	sessionFirst, sessionSecond := play("session")
	if err := errors.Join(s.same(sessionFirst, first), s.same(sessionSecond, second)); err != nil {
		t.Error(err)
	}
	s.Engine.Release("session")
	s.Engine.Release("session")
	s.Engine.Release("never seen")
	again, _ := play("session")
	if err := s.same(again, first); err != nil {
		t.Errorf("after release: %v", err)
	}
}

func checkVersion(t *testing.T, s Subject) {
	req := s.request(1)
	req.Version = s.Engine.Version()
	if gen := generate(t, s, req); gen.Version != req.Version {
		t.Errorf("version %d answered, want %d", gen.Version, req.Version)
	}
	req.Version++
	if _, err := s.Engine.Generate(t.Context(), req); !errors.Is(err, inference.ErrStaleVersion) {
		t.Errorf("error %v for a version not loaded, want ErrStaleVersion", err)
	}
}

func checkContext(t *testing.T, s Subject) {
	req := s.request(1)
	req.MaxTokens = s.Engine.MaxContext() - len(s.Prompt) + 1
	_, err := s.Engine.Generate(t.Context(), req)
	if err == nil || errors.Is(err, inference.ErrOverloaded) || errors.Is(err, inference.ErrStaleVersion) {
		t.Errorf("error %v for a context one token too long, want one naming the limit", err)
	}
}

func checkCancel(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Engine.Generate(ctx, s.request(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	generate(t, s, s.request(1))
}

// checkCut stops a generation and resumes it from its tokens so far: both parts together
// equal the generation without a stop.
func checkCut(t *testing.T, s Subject) {
	whole := s.request(4)
	whole.MaxTokens = 4 * length
	want := generate(t, s, whole)
	for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(after, func() { cancel(inference.ErrCut) })
		if after == 0 {
			cancel(inference.ErrCut)
		}
		got, err := s.Engine.Generate(ctx, whole)
		timer.Stop()
		cancel(nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(got.Tokens); n < whole.MaxTokens {
			if got.Finish != rl.FinishAbort || len(got.Logprobs) != n {
				t.Fatalf("%d tokens, %d logprobs, finish %q; want %q", n, len(got.Logprobs), got.Finish, rl.FinishAbort)
			}
			rest := whole
			rest.Tokens = slices.Concat(whole.Tokens, got.Tokens)
			rest.MaxTokens -= n
			more := generate(t, s, rest)
			got.Tokens, got.Logprobs = slices.Concat(got.Tokens, more.Tokens), slices.Concat(got.Logprobs, more.Logprobs)
		}
		if err := s.same(got, want); err != nil {
			t.Errorf("cut after %s: %v", after, err)
		}
	}
}
