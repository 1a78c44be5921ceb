package estimate

import (
	"temper/trainer/flash"
	"temper/trainer/qwen3"
)

// inLoops reports whether XLA computes attention in loops over blocks.
func (c Config) inLoops() bool { return c.Device.Fused && c.Length >= qwen3.LongCompiledRow }

// loopKept lists what attention in loops keeps of all layers where layers are computed
// again: it is not.
func (c Config) loopKept() []Item {
	n, l := int64(c.Rows)*int64(c.Length), int64(c.Model.NumHiddenLayers)
	q := int64(c.Model.NumAttentionHeads * c.Model.HeadDim)
	sums := c.loopSums()
	return []Item{
		{"activations", "answers of attention, all layers", "w L N q / model", Pass, c.width() * l * n * q / int64(c.Mesh.Model)},
		{"activations", sums.Name + ", all layers", "L " + sums.How, Pass, l * sums.Bytes},
	}
}

// loopSums are the log-sums of one layer.
func (c Config) loopSums() Item {
	n := int64(c.Rows) * int64(c.Length)
	return Item{"", "log-sums of attention", "4 N H / model", "", 4 * n * int64(c.Model.NumAttentionHeads) / int64(c.Mesh.Model)}
}

// loopScratch lists what the gradient of attention in loops holds: sums in float32, and for
// one pair of blocks the weights and their gradient.
func (c Config) loopScratch() []Item {
	cfg, w, m := c.Model, c.width(), int64(c.Mesh.Model)
	n, b := int64(c.Rows)*int64(c.Length), int64(flash.Block(c.Length))
	q, kv := int64(cfg.NumAttentionHeads*cfg.HeadDim), int64(cfg.NumKeyValueHeads*cfg.HeadDim)
	block := Item{"workspace", "weights of a pair of blocks and their gradient", "8 B H b b / model", Layer, 8 * int64(c.Rows) * int64(cfg.NumAttentionHeads) * b * b / m}
	if w < 4 {
		block.How, block.Bytes = "(8 + 2 w) B H b b / model", block.Bytes/8*(8+2*w)
	}
	return []Item{
		{"workspace", "gradients of queries, keys, values", "(4 + w) N (q + kv) / model", Layer, (4 + w) * n * (q + kv) / m},
		block,
	}
}
