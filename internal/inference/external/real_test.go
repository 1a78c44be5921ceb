//go:build integration

package external_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/inference/external"
	"temper/internal/inference/inferencetest"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
)

// model is a network that each of the servers can run: vLLM on a CPU wants heads of 32.
func network(tied bool) model.Config {
	return model.Config{
		VocabSize: 512, HiddenSize: 128, IntermediateSize: 256, NumHiddenLayers: 3, NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 32,
		MaxPositionEmbeddings: 256, RopeTheta: 1e6, RMSNormEps: 1e-6, TieWordEmbeddings: tied, InitializerRange: 0.1,
	}
}

// stored publishes a random policy of a seed.
func stored(t *testing.T, store blob.Store, m model.Config, seed uint64) blob.Ref {
	t.Helper()
	weights, err := model.InitialTensors(m, seed)
	if err != nil {
		t.Fatal(err)
	}
	lookup := model.ByName(weights)
	ref, err := checkpoint.PublishFrom(t.Context(), store, filepath.Join("policies", string(rune('0'+seed))), checkpoint.Policy{Model: m},
		func(name string) (model.Tensor, error) { w, _ := lookup(name); return w, nil })
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// conform runs the suite against an engine that serves the policy at ref.
func conform(t *testing.T, e *external.Engine, m model.Config, store blob.Store, ref blob.Ref, tolerance float64) {
	t.Helper()
	publisher, dir := checkpoint.Exporter{Store: store}, filepath.Join(t.TempDir(), "policy")
	if err := publisher.Write(t.Context(), ref, dir); err != nil {
		t.Fatal(err)
	}
	inferencetest.RunExternal(t, func(*testing.T) inferencetest.External {
		return inferencetest.External{
			Engine: e, Prompt: []int32{1, 2, 3, 4, 5}, Vocab: m.VocabSize, Tolerance: tolerance,
			Logprobs: func(ids []int32, from int, temperature float32) ([]float32, error) {
				return publisher.Logprobs(t.Context(), dir, ids, from, temperature)
			},
		}
	})
}

// cutLate takes a generation away that has sampled something: the server gives it back,
// and does not let the caller wait for the rest.
func cutLate(t *testing.T, e *external.Engine) {
	t.Helper()
	req := inference.Request{Tokens: []int32{1, 2, 3}, MaxTokens: 250, Temperature: 1, Seed: 1, Version: -1}
	for after := time.Millisecond; after < time.Minute; after *= 2 {
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(after, func() { cancel(inference.ErrCut) })
		start := time.Now()
		gen, err := e.Generate(ctx, req)
		timer.Stop()
		cancel(nil)
		if err != nil {
			t.Fatal(err)
		}
		if late := time.Since(start) - after; late > 8*time.Second {
			t.Fatalf("the answer came %s after the cut", late)
		}
		switch n := len(gen.Tokens); {
		case n == req.MaxTokens:
			t.Fatalf("%d tokens in %s: nothing was cut", n, after)
		case n > 0:
			t.Logf("cut after %s: %d tokens kept", after, n)
			return
		}
	}
	t.Error("no cut generation kept a token")
}

// measure compares the log-probabilities of many tokens with ours, and says how far
// they are apart. TEMPER_TEST_TOKENS is how many.
func measure(t *testing.T, e *external.Engine, m model.Config, store blob.Store, ref blob.Ref, tolerance float64) {
	t.Helper()
	want := 600
	if text := os.Getenv("TEMPER_TEST_TOKENS"); text != "" {
		var err error
		if want, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	publisher, dir := checkpoint.Exporter{Store: store}, filepath.Join(t.TempDir(), "policy")
	if err := publisher.Write(t.Context(), ref, dir); err != nil {
		t.Fatal(err)
	}
	const each = 200
	requests := make([]inference.Request, (want+each-1)/each)
	answers := make([]inference.Generation, len(requests))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range requests {
		requests[i] = inference.Request{Tokens: []int32{1, int32(i + 2), 3}, MaxTokens: each, Temperature: 1, Seed: uint64(i), Version: -1}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			var err error
			if answers[i], err = e.Generate(t.Context(), requests[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	largest, tokens := 0.0, 0
	for i, a := range answers {
		ours, err := publisher.Logprobs(t.Context(), dir, slices.Concat(requests[i].Tokens, a.Tokens), len(requests[i].Tokens), 1)
		if err != nil {
			t.Fatal(err)
		}
		for j := range a.Logprobs {
			largest = max(largest, math.Abs(float64(a.Logprobs[j]-ours[j])))
		}
		tokens += len(a.Tokens)
	}
	t.Logf("largest difference of %d log-probabilities: %.3g", tokens, largest)
	if tokens < want || !(largest <= tolerance) {
		t.Errorf("largest difference of %d log-probabilities is %g, want at most %g of %d", tokens, largest, tolerance, want)
	}
}
