package estimate

import (
	"fmt"
	"math/bits"
)

// The Go backend, counted from the buffers that its passes hold when operations
// run one after the other in the order of the graph (device.InOrder): float32, one
// device, no fusion. Buffers go back to a pool for each size, which keeps the most
// that were ever in use of it: what two stages of a pass need adds up unless their
// buffers are of one size.
const (
	// programBytes is the program itself with the garbage of its collector.
	programBytes = 20 << 20
	// Matrices that a layer keeps for its gradient, with probabilities where the
	// objective is supervised: policy updates make them again.
	keptHidden, keptQueries, keptKeys, keptScores, keptFeed = 6, 4, 4, 1, 4
	// Matrices besides, while one layer's gradient is made; of scores 3, and one that
	// the collector has taken from its pool.
	plainHidden, plainQueries, plainKeys, plainScores, plainFeed = 4, 4, 5, 4, 1
	// The same, with those of the layer, where it is made again.
	rematHidden, rematQueries, rematKeys, rematScores, rematFeed = 6, 7, 9, 3, 5
	// plainMasks is how many matrices [T, T] are at hand.
	plainMasks = 4
	// plainLogits is how many matrices [N, V] the loss and its gradient hold, and
	// plainChunks how many of a chunk where the vocabulary is worked off in chunks.
	plainLogits, plainChunks = 2, 4
	// plainTables is how many matrices [V, D] the gradients of the head and of the
	// embeddings take.
	plainTables = 3
	// plainUpdate is the copies of the weights that an update holds for one tensor
	// at a time, as a part of all of them, and plainStart those of the host at the start.
	plainUpdate, plainStart = 0.25, 2
	// packingBytes is where products rearrange their factors.
	packingBytes = 17 << 20
	// plainSlack is the part of a pass's buffers by which the heap outgrows them,
	// because the collector has taken some from the pools and not given them back:
	// more of those that a layer frees and the next one takes again.
	// Passes side by side do not need all of theirs at the same moment.
	plainSlack, plainSlackRemat = 0.04, 0.25
	// plainOverlap is the part of one pass's workspace that each further pass beside
	// it has at the same moment. What a pass keeps it has for as long as it runs, its
	// workspace but once, with remat layer after layer.
	plainOverlap, plainOverlapRemat = 0.25, 0.5
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
		{"optimizer", "update, tensor after tensor", "P", Always, int64(4 * plainUpdate * float64(p.all))},
		{"weights", "host copies at the start", "8 P", Always, 4 * plainStart * p.all},
	}
	if c.Accumulate {
		items = append(items, Item{"gradients", "of the passes under way", "4 P passes", Always, 4 * p.all * int64(max(1, c.Passes))})
	}
	if c.Reference {
		items = append(items, Item{"reference", "weights, float32, and what they were copied from", "8 P", Always, 8 * p.all})
	}
	if c.SeveralUpdates {
		items = append(items, Item{"undo", "state before a step of several updates", "28 P", Always, 4 * plainKept * p.all})
	}
	return items
}

// plainActivations counts the results that the graph of qwen3.Forward and
// loss.Logprobs keeps, and those that its gradient holds for a while.
func (c Config) plainActivations() []Item {
	cfg := c.Model
	n, l := int64(c.Rows)*int64(c.Length), int64(cfg.NumHiddenLayers)
	hidden, feed := pooled(4*n*int64(cfg.HiddenSize)), pooled(4*n*int64(cfg.IntermediateSize))
	queries, keys := pooled(4*n*int64(cfg.NumAttentionHeads*cfg.HeadDim)), pooled(4*n*int64(cfg.NumKeyValueHeads*cfg.HeadDim))
	width := int64(cfg.NumAttentionHeads) * int64(c.Length)
	scores := pooled(4 * n * width)
	var items []Item
	if c.Remat {
		items = []Item{
			{"activations", "inputs of layers", "4 L N D", Pass, l * hidden},
			{"activations", "answers of attention, all layers", "4 L N q", Pass, l * queries},
			{"workspace", "residual stream and norms, one layer", fmt.Sprintf("%d N D", 4*rematHidden), Layer, rematHidden * hidden},
			{"workspace", "queries and answer, one layer", fmt.Sprintf("%d N q", 4*rematQueries), Layer, rematQueries * queries},
			{"workspace", "keys and values, one layer", fmt.Sprintf("%d N kv", 4*rematKeys), Layer, rematKeys * keys},
			{"workspace", "attention scores, one layer", fmt.Sprintf("%d N H T", 4*rematScores), Layer, rematScores * scores},
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
			{"workspace", "gradients of scores", fmt.Sprintf("%d N H T", 4*plainScores), Layer, plainScores * scores},
			{"workspace", "gradients of the feed-forward", fmt.Sprintf("%d N F", 4*plainFeed), Layer, plainFeed * feed},
		}
	}
	if c.Supervised && !c.Remat {
		items = append(items, Item{"activations", "attention probabilities, all layers", fmt.Sprintf("%d L N H T", 4*keptScores), Pass, l * keptScores * scores})
	}
	items = append(items, Item{"activations", "causal masks and their parts", fmt.Sprintf("%d T T", 4*plainMasks), Pass, plainMasks * pooled(4*int64(c.Length)*int64(c.Length))})
	if c.Packed {
		items = append(items, Item{"activations", "segments of packed sequences", "5 N T", Pass, pooled(4*n*int64(c.Length)) + pooled(n*int64(c.Length))})
	}
	return append(items, c.plainHead(n, width)...)
}

// plainHead counts what the head and the loss hold of n tokens, whose attention has
// so many scores each. Matrices of the same bucket are the same buffers.
func (c Config) plainHead(n, scores int64) []Item {
	v, d, vocab := int64(c.Model.VocabSize), int64(c.Model.HiddenSize), "V"
	tables, matrices := int64(plainTables), int64(plainLogits)
	table := 4 * v * d
	if chunk := int64(c.LogitsChunk); chunk > 0 && chunk < v {
		v, vocab = chunk, "chunk"
		matrices = plainChunks
	}
	free := int64(plainScores) // of attention, while the head works
	if c.Remat {
		free = rematScores
	}
	matrix, how := 4*n*v, fmt.Sprintf("%d N %s", 4*matrices, vocab)
	if bucket(matrix) == bucket(4*n*scores) {
		shared := min(free, matrices)
		matrices, free = matrices-shared, free-shared
	}
	if !c.Remat && bucket(table) == bucket(4*n*scores) { // between layers made again the collector takes them
		tables -= min(free, tables)
	}
	return []Item{
		{"workspace", "gradients of the head and the embeddings", fmt.Sprintf("%d V D", 4*plainTables), Logits, tables * pooled(table)},
		{"workspace", "scores over the vocabulary", how, Logits, matrices * pooled(matrix)},
	}
}

// beside makes items of one pass those of all that run side by side.
func (c Config) beside(items []Item) []Item {
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

// pooled is what a buffer of the Go backend takes: all of its bucket, but for a
// part of the pages behind the data.
func pooled(n int64) int64 { return (n + 3*bucket(n)) / 4 }

// bucket is the size to which the pool rounds a buffer up: 2^k or 1.5*2^k.
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
