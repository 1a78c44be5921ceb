package estimate

import (
	"fmt"
	"math/bits"
)

// The Go backend, counted from its graph: float32, one device, no fusion.
const (
	// programBytes is the program itself with the garbage of its collector.
	programBytes = 20 << 20
	// How many matrices the backward pass holds besides what was kept: of the
	// scores [N, H T] of one layer, and of the hidden and feed-forward sizes.
	// Gradients of weights wait for a free thread while the pass runs ahead, and
	// hold on to their factors; with remat they can wait for one layer only.
	plainScores, plainScoresRemat = 7.5, 7
	plainHidden, plainHiddenRemat = 14, 2
	// plainLogits is how many matrices [N, V] the loss and its gradient hold. The
	// backward pass runs ahead into the last layer meanwhile, with or without remat.
	plainLogits = 5.75
	// plainPieces is how many matrices [V, D] the gradient of the head takes where
	// the vocabulary is worked off in chunks: pieces, their concatenation, its products.
	plainPieces = 5
	// plainChunk is how many matrices [N, D] each chunk of the vocabulary takes.
	plainChunk = 5
	// Copies of the weights in an update, and more of them while the host makes
	// the first ones.
	plainUpdate, plainStart = 5, 2
	// plainOverlap is the part of one pass's workspace that each further pass beside
	// it has at the same moment. What a pass keeps it has for as long as it runs, its
	// workspace but once; with remat layer after layer, so that the passes meet, and
	// the pool keeps buffers of both kinds of stage meanwhile. Fitted on pairs of
	// passes, those with remat with a core for each.
	plainOverlap, plainOverlapRemat = 0.25, 1.8
	// plainKept is how many numbers the size of the weights a step of several updates
	// keeps to be able to go back: weights and moments, and buffers that the pool
	// holds because the copies have taken theirs.
	plainKept = 7
)

// plainState is weights, gradients and moments on the Go backend.
func (c Config) plainState(p parameters) []Item {
	items := []Item{
		{"weights", "float32", "4 P", Always, 4 * p.all},
		{"gradients", "float32", "4 P", Always, 4 * p.all},
		{"optimizer", "AdamW moments, float32", "8 P", Always, 8 * p.all},
		{"optimizer", "update", "20 P", Always, 4 * plainUpdate * p.all},
		{"weights", "host copies at the start", "8 P", Update, 4 * plainStart * p.all},
	}
	if c.Accumulate {
		items = append(items, Item{"gradients", "of the passes under way", "4 P passes", Always, 4 * p.all * int64(max(1, c.Passes))})
	}
	if c.Reference {
		items = append(items,
			Item{"reference", "weights, float32", "4 P", Always, 4 * p.all},
			Item{"reference", "host copy at the start", "4 P", Update, 4 * p.all})
	}
	if c.SeveralUpdates {
		items = append(items, Item{"undo", "state before a step of several updates", "28 P", Always, 4 * plainKept * p.all})
	}
	return items
}

// plainActivations counts the results that the graph of qwen3.Forward and
// loss.Logprobs keeps: each operation whose gradient reads its input or output
// keeps it whole.
func (c Config) plainActivations() []Item {
	cfg := c.Model
	n := int64(c.Rows) * int64(c.Length)
	d, f := int64(cfg.HiddenSize), int64(cfg.IntermediateSize)
	q, kv := int64(cfg.NumAttentionHeads*cfg.HeadDim), int64(cfg.NumKeyValueHeads*cfg.HeadDim)
	ht := int64(cfg.NumAttentionHeads) * int64(c.Length)
	saved := []Item{
		{"", "residual stream and norms", "24 N D", "", 6 * pooled(4*n*d)},
		{"", "queries, keys, values, answer", "16 N (q + kv)", "", 4 * (pooled(4*n*q) + pooled(4*n*kv))},
		{"", "attention probabilities", "8 N H T", "", 2 * pooled(4*n*ht)},
		{"", "feed-forward", "20 N F", "", 5 * pooled(4*n*f)},
	}
	v := int64(cfg.VocabSize)
	vocab := "V"
	if c.LogitsChunk > 0 && int64(c.LogitsChunk) < v {
		v, vocab = int64(c.LogitsChunk), "chunk"
	}
	scores, hidden := plainScores, int64(plainHidden)
	if c.Remat || c.Passes > 1 { // a pass beside others has one thread
		scores, hidden = plainScoresRemat, plainHiddenRemat
	}
	items := c.kept(saved, Item{"activations", "inputs of layers", "4 L N D", Pass, int64(cfg.NumHiddenLayers) * pooled(4*n*d)})
	if v < int64(cfg.VocabSize) {
		table := int64(cfg.VocabSize) * d
		chunks := (int64(cfg.VocabSize) + v - 1) / v
		items = append(items,
			Item{"workspace", "gradient of the head in pieces", "20 V D", Logits, plainPieces * 4 * table},
			Item{"workspace", "hidden states by chunk", "20 N D chunks", Logits, plainChunk * chunks * pooled(4*n*d)})
	}
	if c.Packed {
		items = append(items, Item{"activations", "segments of packed sequences", "5 N T", Pass, pooled(4*n*int64(c.Length)) + pooled(n*int64(c.Length))})
	}
	return append(items,
		Item{"activations", "rotary tables by token, all layers", "4 L N (q + kv)", Pass, int64(cfg.NumHiddenLayers) * (pooled(4*n*q) + pooled(4*n*kv))},
		Item{"workspace", "gradients of scores", fmt.Sprintf("%g N H T", 4*scores), Layer, int64(scores * float64(pooled(4*n*ht)))},
		Item{"workspace", "gradients of layers and their factors", fmt.Sprintf("%d N (D + F)", 4*hidden), Layer, hidden * (pooled(4*n*d) + pooled(4*n*f))},
		Item{"workspace", "scores over the vocabulary", fmt.Sprintf("%g N %s", 4*plainLogits, vocab), Logits, int64(plainLogits * float64(pooled(4*n*v)))},
		Item{"workspace", "gradients of the last layer", fmt.Sprintf("%d N (D + F)", 4*plainHidden), Logits, plainHidden * (pooled(4*n*d) + pooled(4*n*f))},
	)
}

// beside makes items of one pass those of all that run side by side.
func (c Config) beside(items []Item) []Item {
	more := float64(max(1, c.Passes) - 1)
	overlap := plainOverlap
	if c.Remat {
		overlap = plainOverlapRemat
	}
	for i := range items {
		switch {
		case more == 0:
		case items[i].Stage == Pass:
			items[i].Bytes *= int64(c.Passes)
			items[i].How += " passes"
		default:
			items[i].Bytes = int64(float64(items[i].Bytes) * (1 + overlap*more))
			items[i].How += fmt.Sprintf(" (1 + %g (passes - 1))", overlap)
		}
	}
	return items
}

// pooled is what a buffer of the Go backend takes: its pool rounds sizes up to
// 2^k or 1.5*2^k, and about half of the pages behind the data are touched.
func pooled(n int64) int64 {
	top := int64(1) << (bits.Len64(uint64(n)) - 1)
	size := top
	switch {
	case n == top:
	case n <= top+top/2:
		size = top + top/2
	default:
		size = 2 * top
	}
	return (n + size) / 2
}
