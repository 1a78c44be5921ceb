package checkpoint_test

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/inference"
	"temper/trainer/checkpoint"
	"temper/trainer/engine"
	"temper/trainer/model"
)

// TestLogprobs: what a server must report is what Temper's own engine reports.
func TestLogprobs(t *testing.T) {
	m := model.Config{
		VocabSize: 60, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 16,
		MaxPositionEmbeddings: 64, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1,
	}
	weights, err := model.InitialTensors(m, 1)
	if err != nil {
		t.Fatal(err)
	}
	store, lookup := memblob.New(), model.ByName(weights)
	ref, err := checkpoint.PublishFrom(t.Context(), store, "policies/0", checkpoint.Policy{Model: m},
		func(name string) (model.Tensor, error) { w, _ := lookup(name); return w, nil })
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Model: m, MaxContext: 64, Slots: 4, LoadWeights: func(context.Context, blob.Ref) ([]model.Tensor, error) { return weights, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Load(t.Context(), ref, 0); err != nil {
		t.Fatal(err)
	}
	p, dir := checkpoint.Exporter{Store: store}, filepath.Join(t.TempDir(), "policy")
	if err := p.Write(t.Context(), ref, dir); err != nil {
		t.Fatal(err)
	}
	for _, temperature := range []float32{1, 2} {
		req := inference.Request{Tokens: []int32{1, 2, 3}, MaxTokens: 12, Temperature: temperature, Seed: 3, Version: 0}
		gen, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Logprobs(t.Context(), dir, slices.Concat(req.Tokens, gen.Tokens), 3, temperature)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if d := math.Abs(float64(got[i] - gen.Logprobs[i])); !(d < 1e-5) {
				t.Errorf("temperature %g: log-probability %d is %v, the engine says %v", temperature, i, got[i], gen.Logprobs[i])
			}
		}
	}
	if _, err := p.Logprobs(t.Context(), dir, []int32{1}, 0, 1); err == nil {
		t.Error("the first id has a log-probability")
	}
}
