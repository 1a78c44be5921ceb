package estimate

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
)

// The Go backend: float32, one device, no fusion. The figures count the buffers of its passes
// when operations run one after another in the order of the graph (device.InOrder). A pool for
// each size of buffer keeps as many as were ever in use at once. So the buffers of two stages of
// a pass add up, unless they have the same size.
const (
	// programBytes is the program, with memory that the collector has not freed yet.
	programBytes = 20 << 20
	// Matrices that a layer keeps for its gradient.
	keptHidden, keptQueries, keptKeys, keptFeed = 6, 4, 4, 4
	// Further matrices while the gradient of one layer is computed.
	plainHidden, plainQueries, plainKeys, plainFeed = 4, 4, 5, 1
	// The same with Remat, including the matrices of the recomputed layer.
	rematHidden, rematQueries, rematKeys, rematFeed = 6, 7, 9, 5
	// plainLogits is the number of matrices [N, V] that the loss and its gradient hold.
	// With the vocabulary in chunks, plainChunks is the number of matrices [N, chunk].
	plainLogits, plainChunks = 2, 4
	// plainTables is the number of matrices [V, D] for the gradients of the head and of
	// the embeddings.
	plainTables = 3
	// plainOperands is the number of copies of queries, keys and values that attention in blocks
	// makes of a layer: its inputs, its outputs and its parts.
	plainOperands = 3
	// plainBlock is the number of queries in a block of scores. Weights and their gradient
	// are two blocks.
	plainBlock = 24
	// plainUpdate is the memory of an update for one tensor at a time, as a share of a copy of
	// all weights.
	plainUpdate = 0.25
	// packingBytes is the memory in which products rearrange their factors.
	packingBytes = 17 << 20
	// plainSlack is the share by which the heap is larger than the buffers of a pass: the
	// collector has taken some from the pools and not freed them yet. It is larger for buffers
	// that one layer frees and the next one allocates. It does not apply to concurrent passes,
	// which do not need all of their buffers at once.
	plainSlack, plainSlackRemat = 0.01, 0.18
	// plainOverlap is the share of its workspace that each further pass holds at the peak. A pass
	// holds its kept values as long as it runs, but its workspace only for a moment: once, or
	// with Remat once a layer.
	plainOverlap, plainOverlapRemat = 0.1, 0.4
	// plainKept is the memory of the savepoint of a step of several updates, in copies of the
	// weights: weights and moments, and the buffers that the pool holds in addition, because the
	// copies occupy theirs.
	plainKept = 7
)

// plainState lists weights, gradients and moments on the Go backend.
func (c Config) plainState(p parameters) []Item {
	items := []Item{
		{"weights", "float32", "4 P", Always, 4 * p.all},
		{"gradients", "float32", "4 P", Always, 4 * p.all},
		{"optimizer", "AdamW moments, float32", "8 P", Always, 8 * p.all},
		{"optimizer", "update, tensor after tensor", "P", Always, int64(4 * plainUpdate * float64(p.all))},
	}
	if c.Accumulate {
		items = append(items, Item{"gradients", "of the passes under way", "4 P passes", Always, 4 * p.all * int64(max(1, c.Passes))})
	}
	if c.Reference {
		items = append(items, Item{"reference", "weights, float32", "4 P", Always, 4 * p.all})
	}
	if c.SeveralUpdates {
		items = append(items, Item{"undo", "state before a step of several updates", "28 P", Always, 4 * plainKept * p.all})
	}
	return items
}

// plainActivations lists the results that the graph of graphs.Forward and loss.Logprobs keeps,
// and the temporary ones of its gradient.
func (c Config) plainActivations() []Item {
	cfg := c.Model
	n, l := int64(c.Rows)*int64(c.Length), int64(cfg.NumHiddenLayers)
	hidden, feed := pooled(4*n*int64(cfg.HiddenSize)), pooled(4*n*int64(cfg.IntermediateSize))
	queries, keys := pooled(4*n*int64(cfg.NumAttentionHeads*cfg.HeadDim)), pooled(4*n*int64(cfg.NumKeyValueHeads*cfg.HeadDim))
	var items []Item
	if c.Remat {
		items = []Item{
			{"activations", "inputs of layers", "4 L N D", Pass, l * hidden},
			{"activations", "answers of attention, all layers", "4 L N q", Pass, l * queries},
			{"workspace", "residual stream and norms, one layer", fmt.Sprintf("%d N D", 4*rematHidden), Layer, rematHidden * hidden},
			{"workspace", "queries and answer, one layer", fmt.Sprintf("%d N q", 4*rematQueries), Layer, rematQueries * queries},
			{"workspace", "keys and values, one layer", fmt.Sprintf("%d N kv", 4*rematKeys), Layer, rematKeys * keys},
			{"workspace", "feed-forward, one layer", fmt.Sprintf("%d N F", 4*rematFeed), Layer, rematFeed * feed},
		}
	} else {
		items = []Item{
			{"activations", "residual stream and norms, all layers", fmt.Sprintf("%d L N D", 4*keptHidden), Pass, l * keptHidden * hidden},
			{"activations", "queries and answer, all layers", fmt.Sprintf("%d L N q", 4*keptQueries), Pass, l * keptQueries * queries},
			{"activations", "keys and values, all layers", fmt.Sprintf("%d L N kv", 4*keptKeys), Pass, l * keptKeys * keys},
			{"activations", "feed-forward, all layers", fmt.Sprintf("%d L N F", 4*keptFeed), Pass, l * keptFeed * feed},
			{"workspace", "gradients of the residual stream", fmt.Sprintf("%d N D", 4*plainHidden), Layer, plainHidden * hidden},
			{"workspace", "gradients of queries and answer", fmt.Sprintf("%d N q", 4*plainQueries), Layer, plainQueries * queries},
			{"workspace", "gradients of keys and values", fmt.Sprintf("%d N kv", 4*plainKeys), Layer, plainKeys * keys},
			{"workspace", "gradients of the feed-forward", fmt.Sprintf("%d N F", 4*plainFeed), Layer, plainFeed * feed},
		}
	}
	return append(slices.Concat(items, c.blockItems(n)), c.plainHead(n)...)
}

// blockItems lists the memory of attention in blocks for n tokens.
func (c Config) blockItems(n int64) []Item {
	cfg := c.Model
	all := 4 * n * int64((cfg.NumAttentionHeads+2*cfg.NumKeyValueHeads)*cfg.HeadDim)
	workers := int64(runtime.GOMAXPROCS(0))
	items := []Item{
		{"workspace", "operands of attention, one layer", fmt.Sprintf("%d N (q + 2 kv)", 4*plainOperands), Layer, plainOperands * pooled(all)},
		{"workspace", "blocks of scores", fmt.Sprintf("%d T + 8 T E, for each core", 8*plainBlock), Layer, workers * 8 * int64(c.Length) * int64(plainBlock+cfg.HeadDim)},
	}
	if c.Packed {
		items = append(items, Item{"activations", "segments of packed sequences, as integers and as numbers", "8 N", Pass, 2 * pooled(4*n)})
	}
	return items
}

// plainHead lists the memory of the head and the loss for n tokens.
func (c Config) plainHead(n int64) []Item {
	v, d, vocab := int64(c.Model.VocabSize), int64(c.Model.HiddenSize), "V"
	tables, matrices := int64(plainTables), int64(plainLogits)
	table := 4 * v * d
	if chunk := int64(c.LogitsChunk); chunk > 0 && chunk < v {
		v, vocab = chunk, "chunk"
		matrices = plainChunks
	}
	matrix, how := 4*n*v, fmt.Sprintf("%d N %s", 4*matrices, vocab)
	return []Item{
		{"workspace", "gradients of the head and the embeddings", fmt.Sprintf("%d V D", 4*plainTables), Logits, tables * pooled(table)},
		{"workspace", "scores over the vocabulary", how, Logits, matrices * pooled(matrix)},
	}
}

// sideBySide turns the items of one pass into the items of all concurrent passes.
func (c Config) sideBySide(items []Item) []Item {
	more := float64(max(1, c.Passes) - 1)
	overlap := plainOverlap
	if c.Remat {
		overlap = plainOverlapRemat
	}
	if more == 0 {
		sum := 0.0
		for _, i := range items {
			if c.Remat && i.Stage != Logits {
				sum += plainSlackRemat * float64(i.Bytes)
			} else {
				sum += plainSlack * float64(i.Bytes)
			}
		}
		return append(items, Item{"runtime", "slack of the collector", fmt.Sprintf("%g of a pass", plainSlack), Pass, int64(sum)})
	}
	for i := range items {
		switch {
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

// pooled returns the memory of a buffer of the Go backend: its bucket, less a part of the pages
// behind the data, which are never touched.
func pooled(n int64) int64 { return (n + 3*bucket(n)) / 4 }

// bucket returns the size to which the pool rounds a buffer up: 2^k or 1.5*2^k.
func bucket(n int64) int64 {
	top := int64(1) << (bits.Len64(uint64(n)) - 1)
	switch {
	case n == top:
		return top
	case n <= top+top/2:
		return top + top/2
	}
	return 2 * top
}
