//go:build goexperiment.simd && amd64

package decode_test

import (
	"math"
	"slices"
	"testing"

	"temper/trainer/cpu/decode"
	"temper/trainer/cpu/kernels"
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
)

// TestLayoutsHaveTheSameBits: weights that are read where they lie, in either type, give what
// packed ones give: with an odd vocabulary, panels that end within a vector of pairs, and
// for several numbers of tokens.
func TestLayoutsHaveTheSameBits(t *testing.T) {
	for _, choice := range []kernels.Choice{kernels.Native, kernels.Portable} {
		t.Run(string(choice), func(t *testing.T) { sameBits(t, choice) })
	}
}

// sameBits compares the layouts under one choice of kernels.
func sameBits(t *testing.T, choice kernels.Choice) {
	for _, tied := range []bool{true, false} {
		cfg := model.Config{VocabSize: 205, HiddenSize: 208, IntermediateSize: 400, NumHiddenLayers: 2, NumAttentionHeads: 3, NumKeyValueHeads: 1,
			HeadDim: 48, MaxPositionEmbeddings: 64, RopeTheta: 1e4, RMSNormEps: 1e-6, InitializerRange: 0.1, TieWordEmbeddings: tied}
		if err := decode.Check(cfg, choice); err != nil {
			t.Skip(err)
		}
		weights, err := model.InitialTensors(cfg, 3)
		if err != nil {
			t.Fatal(err)
		}
		halves := map[string]tensor.Stored{}
		for _, w := range weights {
			h := tensor.Stored{Name: w.Name, Shape: w.Shape, BFloat16: make([]uint16, len(w.Data))}
			for i, x := range w.Data {
				h.BFloat16[i] = uint16(math.Float32bits(x) >> 16)
			}
			tensor.Widen(w.Data, h.BFloat16) // so that both types have the same values
			halves[w.Name] = h
		}
		inHalves := func(name string) (tensor.Stored, bool) {
			h, ok := halves[name]
			return h, ok
		}
		want := logits(t, cfg, choice, decode.Packed, tensor.StoredByName(weights))
		for name, got := range map[string][]float32{
			"float32 in place":  logits(t, cfg, choice, decode.InPlace, tensor.StoredByName(weights)),
			"bfloat16 in place": logits(t, cfg, choice, decode.InPlace, inHalves),
			"bfloat16 packed":   logits(t, cfg, choice, decode.Packed, inHalves),
		} {
			if !slices.Equal(got, want) {
				t.Errorf("tied %v, %s: other bits than float32 packed", tied, name)
			}
		}
	}
}

// logits are the scores after 1, 7 and 12 tokens of one sequence.
func logits(t *testing.T, cfg model.Config, choice kernels.Choice, layout decode.Layout, find tensor.Lookup) []float32 {
	t.Helper()
	net, err := decode.NewNetwork(cfg, choice, layout, find)
	if err != nil {
		t.Fatal(err)
	}
	if got := net.InPlace(); got != (layout == decode.InPlace) {
		t.Fatalf("in place: %v", got)
	}
	p := decode.NewPass(cfg, 3, 64)
	p.Use(net)
	var out []float32
	at := 0
	for _, n := range []int{1, 7, 12} {
		tokens := make([]decode.Token, n)
		for i := range tokens {
			tokens[i] = decode.Token{ID: int32((5 + 31*at) % cfg.VocabSize), Position: at, Blocks: []int32{2, 0}, Sample: true, Uniform: 0.5, Scale: 1,
				Logits: make([]float32, cfg.PaddedVocab())}
			at++
		}
		if err := p.Run(tokens); err != nil {
			t.Fatal(err)
		}
		for _, k := range tokens {
			out = append(append(out, k.Logits[:cfg.VocabSize]...), k.Logprob)
		}
	}
	return out
}
