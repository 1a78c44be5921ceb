package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/inference"
	"temper/trainer/engine"
)

// together generates several requests at once.
func together(t *testing.T, e *engine.Engine, reqs []inference.Request) []inference.Generation {
	t.Helper()
	gens := make([]inference.Generation, len(reqs))
	var wg sync.WaitGroup
	for i := range reqs {
		wg.Go(func() {
			var err error
			if gens[i], err = e.Generate(t.Context(), reqs[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return gens
}

// TestGroupPrefix samples 32 rollouts of a prompt of 1,000 tokens.
func TestGroupPrefix(t *testing.T) {
	model := tiny()
	model.MaxPositionEmbeddings = 1100
	e := start(t, engine.Config{Model: model, Slots: 32, Capacity: 4096, Shards: 2})
	const tokens, rollouts = 1000, 32
	reqs := make([]inference.Request, rollouts)
	for i := range reqs {
		reqs[i] = inference.Request{Tokens: prompt(1, tokens), MaxTokens: 20, Temperature: 1, Seed: uint64(i % 30), Version: 1, Session: fmt.Sprint(i)}
	}
	gens := together(t, e, reqs[:rollouts/2]) // of two shards with 16 slots, one has them all
	st := e.Stats()
	if fed := st.Prefilled; float64(fed) > 1.05*tokens {
		t.Errorf("%d tokens of a prompt of %d were fed for 16 rollouts, want at most 1.05 times as many", fed, tokens)
	}
	if st.Used > 2*1088+16*32 {
		t.Errorf("%d tokens of the caches are in use, want the prompt once", st.Used)
	}
	for i := range rollouts / 2 {
		e.Release(fmt.Sprint(i))
	}
	gens = append(gens, together(t, e, reqs[rollouts/2:])...)
	if fed := e.Stats().Prefilled; float64(fed) > 1.05*tokens {
		t.Errorf("%d tokens of a prompt of %d were fed for 32 rollouts, want at most 1.05 times as many", fed, tokens)
	}
	alone := start(t, engine.Config{Model: model, Slots: 1, Shards: 1})
	for _, i := range []int{0, 31} {
		bitEqual(t, "a prompt that others have fed", gens[i], generate(t, alone, reqs[i]))
	}
	load(t, e, model, 2)
	before := e.Stats().Prefilled
	reqs[0].Version = 2
	generate(t, e, reqs[0])
	if fed := e.Stats().Prefilled - before; fed != tokens-1 {
		t.Errorf("after a load %d tokens of the prompt were fed, want all %d but the last", fed, tokens)
	}
}

// TestPreemptionIsInvisible has room for two contexts and runs eight.
func TestPreemptionIsInvisible(t *testing.T) {
	e := start(t, engine.Config{Model: tiny(), Slots: 8, Shards: 1, Capacity: 160})
	roomy := start(t, engine.Config{Model: tiny(), Slots: 8, Shards: 1})
	reqs := make([]inference.Request, 24)
	for i := range reqs {
		reqs[i] = inference.Request{Tokens: prompt(i, 3+i%4), MaxTokens: 60 + i, Temperature: 1, Seed: uint64(i), Version: 1, Session: fmt.Sprint(i % 9)}
	}
	if diff := cmp.Diff(together(t, roomy, reqs), together(t, e, reqs)); diff != "" {
		t.Errorf("too few blocks change the generations (-want +got):\n%s", diff)
	}
	if st := e.Stats(); st.Preempted == 0 || st.Evictions == 0 || st.Used > st.Capacity || st.Capacity != 160 {
		t.Errorf("%+v: want preemptions and evictions within a capacity of 160", st)
	}
	for i := range 9 {
		e.Release(fmt.Sprint(i))
	}
	generate(t, e, inference.Request{Tokens: prompt(1, 4), MaxTokens: 1, Version: -1})
	for e.Stats().Used > 0 { // the releases are on their way
	}
	status, err := e.Status(t.Context())
	if err != nil || status.Capacity != 160 || status.Running+status.Waiting != 0 || status.MaxContext != 96 {
		t.Errorf("status %+v, error %v", status, err)
	}
}

func TestCapacityIsALimit(t *testing.T) {
	e := start(t, engine.Config{Model: tiny(), Slots: 8, Shards: 2, Capacity: 128})
	if got := e.MaxContext(); got != 64 {
		t.Errorf("largest context %d, want that of a shard, 64", got)
	}
	_, err := e.Generate(t.Context(), inference.Request{Tokens: prompt(1, 40), MaxTokens: 25, Version: -1})
	if !errors.Is(err, inference.ErrTooLarge) {
		t.Errorf("65 tokens: %v, want ErrTooLarge", err)
	}
	generate(t, e, inference.Request{Tokens: prompt(1, 40), MaxTokens: 24, Version: -1})
}

func TestSampler(t *testing.T) {
	e := start(t, engine.Config{Model: tiny(), Slots: 8, Shards: 1})
	plain := inference.Request{Tokens: prompt(1, 20), MaxTokens: 40, Temperature: 1, Seed: 5, Version: 1}
	alone := generate(t, e, plain)
	if alone.Kept != nil {
		t.Error("a request without a sampler has kept tokens")
	}
	nucleus := plain
	nucleus.Sampler = &inference.Sampler{TopP: 0.5, KeepIDs: true}
	gens := together(t, e, []inference.Request{nucleus, plain, nucleus})
	bitEqual(t, "company with a sampler", gens[1], alone)
	bitEqual(t, "the same seed", gens[2], gens[0])
	got := gens[0]
	if len(got.Kept) != len(got.Tokens) {
		t.Fatalf("%d tokens, %d sets of kept ones", len(got.Tokens), len(got.Kept))
	}
	fewer := false
	for i, k := range got.Kept {
		fewer = fewer || k.Count < 50
		inside := false
		for _, id := range k.IDs {
			inside = inside || id == got.Tokens[i]
		}
		if k.Count != len(k.IDs) || !inside {
			t.Errorf("token %d at %d is not among the %d kept ones %v", got.Tokens[i], i, k.Count, k.IDs)
		}
	}
	if !fewer {
		t.Error("a nucleus of one half has every token everywhere")
	}
	all := plain
	all.Sampler = &inference.Sampler{} // keeps everything: only rounding differs
	for i, lp := range generate(t, e, all).Logprobs {
		if d := lp - alone.Logprobs[i]; d > 1e-5 || d < -1e-5 {
			t.Errorf("log-probability %d is %v on the host, %v in the graph", i, lp, alone.Logprobs[i])
		}
	}
	for _, s := range []inference.Sampler{{TopP: 1.5}, {MinP: -1}, {TopK: -1}} {
		bad := plain
		bad.Sampler = &s
		if _, err := e.Generate(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "want 0") {
			t.Errorf("%+v: error %v", s, err)
		}
	}
}

// TestTopLogprobs: whoever asks for the likeliest tokens gets the bits of one who does not.
func TestTopLogprobs(t *testing.T) {
	e := start(t, engine.Config{Model: tiny(), Slots: 8, Shards: 1})
	plain := inference.Request{Tokens: prompt(1, 20), MaxTokens: 30, Temperature: 1, Seed: 5, Version: 1}
	greedy := plain
	greedy.Temperature = 0
	for _, req := range []inference.Request{plain, greedy} {
		alone := generate(t, e, req)
		asked := req
		asked.TopLogprobs = 5
		got := together(t, e, []inference.Request{asked, req})[0]
		bare := got
		bare.Top = nil
		bitEqual(t, "with the likeliest tokens", bare, alone)
		if alone.Top != nil || len(got.Top) != len(got.Tokens) {
			t.Fatalf("%d tokens, the likeliest at %d positions, and at %d unasked", len(got.Tokens), len(got.Top), len(alone.Top))
		}
		for i, top := range got.Top {
			if len(top) != 5 {
				t.Fatalf("position %d: %d tokens, want 5", i, len(top))
			}
			for k, c := range top {
				if k > 0 && c.Logprob > top[k-1].Logprob+1e-6 {
					t.Errorf("position %d: %v is not in order", i, top)
				}
				if c.ID == got.Tokens[i] && c.Logprob != got.Logprobs[i] {
					t.Errorf("position %d: the sampled token has %v among the likeliest and %v alone", i, c.Logprob, got.Logprobs[i])
				}
			}
			if req.Temperature == 0 && top[0].ID != got.Tokens[i] {
				t.Errorf("position %d: greedy took %d, the likeliest is %d", i, got.Tokens[i], top[0].ID)
			}
		}
	}
	for _, n := range []int{-1, inference.MaxTopLogprobs + 1} {
		bad := plain
		bad.TopLogprobs = n
		if _, err := e.Generate(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "want 0 to 20") {
			t.Errorf("%d: error %v", n, err)
		}
	}
}

// TestAContextThatFillsTheCache: what a context could copy from another one must not take the
// room that it needs itself.
func TestAContextThatFillsTheCache(t *testing.T) {
	e := start(t, engine.Config{Model: tiny(), Slots: 2, Shards: 1, MaxContext: 64, Capacity: 64})
	short := inference.Request{Tokens: prompt(1, 12), MaxTokens: 4, Version: -1}
	generate(t, e, short)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	long := inference.Request{Tokens: append(slices.Clone(short.Tokens[:8]), prompt(2, 55)...), MaxTokens: 1, Version: -1}
	got, err := e.Generate(ctx, long)
	if err != nil {
		t.Fatal(err)
	}
	bitEqual(t, "a cache as large as the context", got, generate(t, start(t, engine.Config{Model: tiny(), Slots: 1}), long))
}
