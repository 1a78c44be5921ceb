//go:build xla

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/internal/inference"
	"temper/internal/rl"
	"temper/trainer/engine"
	"temper/trainer/model"
	"temper/trainer/xla/xlatest"
)

// Bounds of a plugin against the backend go.
const (
	logprobBound = 3e-5 // as between the engine and the trainer's forward pass
	tieBound     = 1e-5 // a draw as near as that to the border between two tokens may select either
)

// xlaModel is small, and its distributions are far from uniform.
func xlaModel() model.Config {
	m := demo(64, 2, 96)
	m.VocabSize, m.InitializerRange, m.MaxPositionEmbeddings = 203, 0.3, 160 // no whole number of the sampler's blocks
	return m
}

// TestXLAEngine runs one engine of the plugin through everything: each of its programs takes
// seconds to compile.
func TestXLAEngine(t *testing.T) {
	backend := xlatest.Backend(t)
	cfg := engine.Config{Model: xlaModel(), Slots: 4, Shards: 1, Capacity: 512, Ahead: 8, Queue: 64}
	want := start(t, cfg)
	cfg.Backend = backend
	e := start(t, cfg)
	if e.Native() {
		t.Fatal("an engine of a plugin is native")
	}
	t.Run("tokens", func(t *testing.T) { sameTokens(t, e, want) })
	t.Run("samplers", func(t *testing.T) { sameSampled(t, e, want) })
	t.Run("company", func(t *testing.T) { sameInCompany(t, e) })
	t.Run("turns", func(t *testing.T) { sameTurns(t, e, want) })
	t.Run("transfers", func(t *testing.T) { fewTransfers(t, e) })
	t.Run("interrupt", func(t *testing.T) { interrupt(t, e) })
	t.Run("load", func(t *testing.T) {
		load(t, e, cfg.Model, 2)
		load(t, want, cfg.Model, 2)
		req := inference.Request{Tokens: prompt(4, 8), MaxTokens: 30, Temperature: 1, Seed: 8, Version: 2}
		near(t, cfg.Model, 2, req, generate(t, e, req), generate(t, want, req))
	})
	st := e.Stats()
	if st.Ahead.Programs > 12 {
		t.Errorf("%d programs were compiled, want 12 or fewer", st.Ahead.Programs)
	}
	t.Logf("%+v", st)
}

// near holds a generation of the plugin against that of the backend go. Tokens are equal up to the
// first draw that falls on a border, which is checked with the trainer's forward pass.
func near(t *testing.T, cfg model.Config, version uint64, req inference.Request, got, want inference.Generation) {
	t.Helper()
	for i := range min(len(got.Tokens), len(want.Tokens)) {
		if got.Tokens[i] != want.Tokens[i] {
			context := append(slices.Clone(req.Tokens), want.Tokens[:i]...)
			if d := border(t, cfg, version, context, req, got.Tokens[i], want.Tokens[i]); d > tieBound {
				t.Errorf("token %d is %d, on the backend go %d; the draw is %g from their border", i, got.Tokens[i], want.Tokens[i], d)
			}
			return
		}
		if d := math.Abs(float64(got.Logprobs[i] - want.Logprobs[i])); !(d < logprobBound) {
			t.Errorf("log-probability %d is %v, on the backend go %v", i, got.Logprobs[i], want.Logprobs[i])
		}
	}
	if len(got.Tokens) != len(want.Tokens) || got.Finish != want.Finish {
		t.Errorf("%d tokens, %v; on the backend go %d, %v", len(got.Tokens), got.Finish, len(want.Tokens), want.Finish)
	}
}

// border is how far the draw after a context is from the border between two tokens, as a part of the
// distribution; for greedy requests, how far their probabilities are apart. Tokens that are not
// neighbours have no common border unless nothing lies between them.
func border(t *testing.T, cfg model.Config, version uint64, context []int32, req inference.Request, a, b int32) float64 {
	t.Helper()
	p := distribution(t, cfg, version, context, req.Temperature)
	if req.Temperature == 0 {
		return math.Abs(p[a] - p[b])
	}
	below := 0.0
	for _, x := range p[:min(a, b)+1] {
		below += x
	}
	for _, x := range p[min(a, b)+1 : max(a, b)] {
		if x > tieBound {
			return 1
		}
	}
	return math.Abs(below - float64(rl.Uniform(req.Seed, len(context))))
}

// distribution is that of the token after a context, from the trainer's forward pass.
func distribution(t *testing.T, cfg model.Config, version uint64, context []int32, temperature float32) []float64 {
	t.Helper()
	backend, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	store := ml.NewStore()
	if err := model.Init(nil, store, cfg, version); err != nil {
		t.Fatal(err)
	}
	exec, err := ml.NewExec(backend, store, func(s *ml.Scope, in *graph.Node) *graph.Node {
		logits := model.Logits(s, cfg, model.Forward(s, cfg, model.Inputs{Tokens: in}, model.Options{}))
		return graph.SliceAxis(logits, 1, graph.AxisElem(-1))
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Call([][]int32{context})
	if err != nil {
		t.Fatal(err)
	}
	logits, scale := tensors.MustCopyFlatData[float32](out[0]), 1.0
	if temperature > 0 {
		scale = 1 / float64(temperature)
	}
	p, sum, most := make([]float64, len(logits)), 0.0, float64(slices.Max(logits))
	for i, l := range logits {
		p[i] = math.Exp((float64(l) - most) * scale)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// xlaRequests differ in everything that decides about tokens.
func xlaRequests() []inference.Request {
	var out []inference.Request
	for i := range 14 {
		out = append(out, inference.Request{
			Tokens: prompt(i, 1+(7*i)%40), MaxTokens: 1 + (11*i)%60, Temperature: []float32{1, 0.7, 0, 1.5}[i%4], Seed: uint64(i) << 33, Version: 1,
		})
	}
	out[3].Stop = []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12} // the device sees four of them
	out[5].Stop = []int32{20, 40}
	out[12].Tokens = prompt(12, 100) // more than a bucket of chunks
	return out
}

// all answers requests at once: there are more of them than slots.
func all(t *testing.T, e *engine.Engine, reqs []inference.Request) []inference.Generation {
	t.Helper()
	out := make([]inference.Generation, len(reqs))
	var wg sync.WaitGroup
	for i, req := range reqs {
		wg.Go(func() {
			var err error
			if out[i], err = e.Generate(t.Context(), req); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return out
}

func sameTokens(t *testing.T, e, want *engine.Engine) {
	reqs := xlaRequests()
	got, ref := all(t, e, reqs), all(t, want, reqs)
	equal := 0
	for i := range reqs {
		near(t, xlaModel(), 1, reqs[i], got[i], ref[i])
		if slices.Equal(got[i].Tokens, ref[i].Tokens) {
			equal++
		}
	}
	if equal < len(reqs)-2 {
		t.Errorf("%d of %d generations are equal to the last token: too many ties", equal, len(reqs))
	}
}

// sameSampled: what is sampled on the host from the device's logits.
func sameSampled(t *testing.T, e, want *engine.Engine) {
	reqs := []inference.Request{
		{Tokens: prompt(1, 9), MaxTokens: 6, Temperature: 1, Seed: 1, Version: 1, Sampler: &inference.Sampler{TopK: 5, KeepIDs: true}},
		{Tokens: prompt(2, 20), MaxTokens: 6, Temperature: 1, Seed: 2, Version: 1, Sampler: &inference.Sampler{TopP: 0.8, MinP: 0.01}},
		{Tokens: prompt(3, 20), MaxTokens: 6, Temperature: 1, Seed: 3, Version: 1, TopLogprobs: 3},
	}
	got, ref := all(t, e, reqs), all(t, want, reqs)
	for i := range reqs {
		if !slices.Equal(got[i].Tokens, ref[i].Tokens) || len(got[i].Kept) != len(ref[i].Kept) || len(got[i].Top) != len(ref[i].Top) {
			t.Errorf("request %d: %+v\non the backend go: %+v", i, got[i], ref[i])
		}
	}
}

// sameInCompany: the company of a request, the size of the program and the row in it change no token.
func sameInCompany(t *testing.T, e *engine.Engine) {
	req := inference.Request{Tokens: prompt(77, 30), MaxTokens: 50, Temperature: 1, Seed: 4, Version: 1}
	alone := generate(t, e, req)
	bits := true
	for others := range 4 {
		now := amidRunning(t, e, others+1, req)
		if !slices.Equal(now.Tokens, alone.Tokens) {
			t.Errorf("with %d others: %v, alone %v", others+1, now.Tokens, alone.Tokens)
		}
		for i := range min(len(now.Logprobs), len(alone.Logprobs)) {
			if d := math.Abs(float64(now.Logprobs[i] - alone.Logprobs[i])); !(d < logprobBound) {
				t.Errorf("with %d others, log-probability %d: %v, alone %v", others+1, i, now.Logprobs[i], alone.Logprobs[i])
			}
		}
		bits = bits && slices.Equal(now.Logprobs, alone.Logprobs)
	}
	t.Logf("log-probabilities have the same bits in company: %v", bits)
}

// amidRunning is amid without greedy company of length one.
func amidRunning(t *testing.T, e *engine.Engine, others int, req inference.Request) inference.Generation {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	before := e.Stats().Generated
	for i := range others {
		wg.Go(func() {
			_, _ = e.Generate(ctx, inference.Request{Tokens: prompt(i+1, 3+20*i), MaxTokens: 60, Temperature: 1, Seed: uint64(i), Version: -1})
		})
	}
	for e.Stats().Generated == before {
		time.Sleep(time.Millisecond)
	}
	return generate(t, e, req)
}

// sameTurns: sessions that keep, share and lose their blocks.
func sameTurns(t *testing.T, e, want *engine.Engine) {
	ref := turns(t, want, "", func() {})
	var wg sync.WaitGroup
	for i := range 6 { // two more than slots
		wg.Go(func() {
			got := turns(t, e, fmt.Sprint("session ", i), func() {})
			for k := range ref {
				if !slices.Equal(got[k].Tokens, ref[k].Tokens) {
					t.Errorf("session %d, turn %d: %v, on the backend go %v", i, k, got[k].Tokens, ref[k].Tokens)
				}
			}
		})
	}
	wg.Wait()
	before := e.Stats().Shared
	var group []inference.Request
	for i := range 6 { // a group: one prompt for all
		group = append(group, inference.Request{Tokens: prompt(55, 40), MaxTokens: 9, Temperature: 1, Seed: uint64(i), Version: 1})
	}
	got, alone := all(t, e, group), all(t, want, group)
	for i := range group {
		near(t, xlaModel(), 1, group[i], got[i], alone[i])
	}
	st := e.Stats()
	if st.Shared < before+3*32 {
		t.Errorf("six requests with one prompt of 40 tokens were spared %d tokens", st.Shared-before)
	}
	if st.Active != 0 || st.Used > st.Capacity {
		t.Errorf("after all: %+v", st)
	}
	for i := range 6 {
		e.Release(fmt.Sprint("session ", i))
	}
}

// fewTransfers counts what crosses between host and device: one array up and one down for each decoding call,
// one up for a prefill.
func fewTransfers(t *testing.T, e *engine.Engine) {
	before := e.Stats()
	var reqs []inference.Request
	for i := range 4 {
		reqs = append(reqs, inference.Request{Tokens: prompt(300+i, 24), MaxTokens: 64, Temperature: 1, Seed: uint64(i), Version: 1})
	}
	all(t, e, reqs)
	st := e.Stats()
	tokens := st.Generated - before.Generated
	up, down, calls := st.Ahead.Up-before.Ahead.Up, st.Ahead.Down-before.Ahead.Down, st.Ahead.Calls-before.Ahead.Calls
	if tokens != 256 || up != calls || down > calls {
		t.Errorf("%d tokens, %d calls with %d transfers to the device and %d back", tokens, calls, up, down)
	}
	// Alone, each of the four needs 8 calls of 8 tokens and one prefill, together as many; copies of shared
	// blocks have none here. Requests that begin late add some.
	if perToken := float64(up+down) / float64(tokens); perToken > 0.3 {
		t.Errorf("%.3f transfers a token", perToken)
	}
	if bytes := float64(st.Ahead.UpBytes+st.Ahead.DownBytes-before.Ahead.UpBytes-before.Ahead.DownBytes) / float64(tokens); bytes > 200 {
		t.Errorf("%.0f bytes a token cross", bytes)
	}
}

// interrupt: a request that is cut answers with what it has, and its slot serves others.
func interrupt(t *testing.T, e *engine.Engine) {
	req := inference.Request{Tokens: prompt(9, 10), MaxTokens: 140, Temperature: 1, Seed: 6, Version: 1}
	whole := generate(t, e, req)
	ctx, cut := context.WithCancelCause(t.Context())
	before := e.Stats().Generated
	done := make(chan inference.Generation)
	go func() {
		gen, err := e.Generate(ctx, req)
		if err != nil {
			t.Error(err)
		}
		done <- gen
	}()
	for e.Stats().Generated < before+8 {
		time.Sleep(100 * time.Microsecond)
	}
	cut(inference.ErrCut)
	gen := <-done
	if n := len(gen.Tokens); n < 8 || !slices.Equal(gen.Tokens, whole.Tokens[:n]) || (n < len(whole.Tokens) && gen.Finish != rl.FinishAbort) {
		t.Errorf("after a cut: %v, %v; whole %v", gen.Tokens, gen.Finish, whole.Tokens)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Generate(gone, req); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %v", err)
	}
	if got := generate(t, e, req); !slices.Equal(got.Tokens, whole.Tokens) {
		t.Errorf("after a cut the same request gives %v, before %v", got.Tokens, whole.Tokens)
	}
}
