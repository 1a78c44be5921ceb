package engine_test

import (
	"fmt"
	"testing"

	"temper/internal/inference"
	"temper/trainer/cpu/decode"
	"temper/trainer/cpu/kernels"
	"temper/trainer/engine"
	"temper/trainer/model"
)

// shaped is a network of one or two layers with the given heads.
func shaped(hidden, feed, heads, kv, dim, vocab int) model.Config {
	c := ci()
	c.HiddenSize, c.IntermediateSize, c.VocabSize, c.MaxPositionEmbeddings = hidden, feed, vocab, 320
	c.NumAttentionHeads, c.NumKeyValueHeads, c.HeadDim, c.TieWordEmbeddings = heads, kv, dim, vocab%2 == 0
	return c
}

// TestNativePassEqualsTheGraph: without a graph, every request has the bits that it has
// with one: for each way in which attention adds, products of several panels, odd
// vocabularies, contexts beside the bounds of vectors, and prompts fed in pieces.
func TestNativePassEqualsTheGraph(t *testing.T) {
	for _, choice := range []kernels.Choice{kernels.Native, kernels.Portable} {
		t.Run(string(choice), func(t *testing.T) { passEqualsGraph(t, choice) })
	}
}

// passEqualsGraph compares passes under one choice of kernels.
func passEqualsGraph(t *testing.T, choice kernels.Choice) {
	if err := decode.Check(ci(), choice); err != nil {
		t.Skip(err)
	}
	biased, scaled := shaped(64, 192, 4, 2, 16, 430), shaped(96, 288, 4, 2, 32, 401)
	biased.FamilyName, biased.NoQKNorm, biased.QKVBias, biased.OBias, biased.MLPBias = "llama", true, true, true, true
	scaled.FamilyName, scaled.NoQKNorm, scaled.QKVBias = "qwen2", true, true
	scaled.Rope = model.Rope{Kind: model.RopeYarn, Factor: 4, OriginalPositions: 64}
	for _, network := range []model.Config{
		biased, scaled, shaped(64, 192, 4, 2, 16, 430), shaped(96, 288, 4, 2, 32, 401), shaped(208, 400, 6, 3, 32, 64), shaped(80, 16, 2, 2, 48, 65),
		shaped(128, 384, 4, 1, 64, 512), shaped(256, 208, 3, 3, 128, 130), shaped(32, 112, 5, 5, 32, 400),
	} {
		t.Run(fmt.Sprintf("%sd%d,ff%d,H%d,KV%d,E%d,V%d", network.FamilyName, network.HiddenSize, network.IntermediateSize, network.NumAttentionHeads,
			network.NumKeyValueHeads, network.HeadDim, network.VocabSize), func(t *testing.T) {
			native := start(t, engine.Config{Model: network, Kernels: choice, Slots: 6, Shards: 1})
			graph := start(t, engine.Config{Model: network, Kernels: choice, Slots: 6, Shards: 1, Graph: true})
			if !native.Native() || graph.Native() {
				t.Fatalf("native passes: %v and %v, want true and false", native.Native(), graph.Native())
			}
			for i, n := range []int{1, 15, 30, 47, 130} {
				req := inference.Request{Tokens: prompt(i, n), MaxTokens: 35, Temperature: []float32{1, 0.7, 0, 3}[i%4], Seed: uint64(i), Version: -1}
				for k, id := range req.Tokens {
					req.Tokens[k] = id % int32(network.VocabSize)
				}
				bitEqual(t, fmt.Sprintf("no graph after a prompt of %d", n), amid(t, native, i*3, req), generate(t, graph, req))
			}
		})
	}
}

// TestNativePassSharesAndTruncatesAsTheGraph: contexts that part in the middle of a block
// are copied, and a truncated distribution is made from the same scores.
func TestNativePassSharesAndTruncatesAsTheGraph(t *testing.T) {
	if err := decode.Check(ci(), kernels.Native); err != nil {
		t.Skip(err)
	}
	native := start(t, engine.Config{Model: ci(), Slots: 6, Shards: 1})
	graph := start(t, engine.Config{Model: ci(), Slots: 6, Shards: 1, Graph: true})
	for i, n := range []int{40, 25, 20, 39} {
		req := inference.Request{Tokens: append(prompt(1, 40)[:n:n], prompt(2+i, 3)...), MaxTokens: 20, Temperature: 1, Seed: uint64(i), Version: -1}
		if i > 1 {
			req.Sampler = &inference.Sampler{TopK: 7, KeepIDs: true}
		}
		bitEqual(t, fmt.Sprintf("no graph with %d common tokens", n), generate(t, native, req), generate(t, graph, req))
	}
	if native.Stats().Shared == 0 {
		t.Error("nothing was shared")
	}
}

// TestNetworksWithoutANativePassTakeTheGraph names what has no kernels.
func TestNetworksWithoutANativePassTakeTheGraph(t *testing.T) {
	odd := shaped(64, 192, 4, 2, 24, 400)
	if decode.Check(odd, kernels.Native) == nil || decode.Check(odd, kernels.Portable) == nil {
		t.Error("heads of 24 dimensions have a native pass")
	}
	if start(t, engine.Config{Model: odd, Slots: 1}).Native() {
		t.Error("heads of 24 dimensions were decoded without a graph")
	}
}
