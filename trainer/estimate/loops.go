package estimate

import (
	"cmp"
	"fmt"

	"temper/trainer/model/graphs"
	"temper/trainer/xla/flash"
)

// inLoops reports whether XLA computes attention in loops over blocks. Then the values between
// products are computed again in the backward pass, also without Remat. The residual stream,
// norms, rotations and the gates of SwiGLU are float32 in any case.
func (c Config) inLoops() bool { return c.Device.Fused && c.Length >= graphs.LongCompiledRow }

// loopActivations lists the values that a graph with attention in loops keeps for the
// backward pass, and the further values that the backward pass of one layer needs.
func (c Config) loopActivations() []Item {
	cfg, w, m := c.Model, c.width(), int64(c.Mesh.Model)
	n, l := int64(c.Rows)*int64(c.Length), int64(cfg.NumHiddenLayers)
	d, f := int64(cfg.HiddenSize), int64(cfg.IntermediateSize)
	q, kv := int64(cfg.NumAttentionHeads*cfg.HeadDim), int64(cfg.NumKeyValueHeads*cfg.HeadDim)
	items := []Item{
		{"activations", "residual stream, all layers", "8 L N D", Pass, 8 * l * n * d},
		{"activations", "queries, keys, values, answers, all layers", "w L N (2 q + 2 kv) / model", Pass, w * l * n * (2*q + 2*kv) / m},
		{"activations", "feed-forward, all layers", "2 w L N F / model", Pass, 2 * w * l * n * f / m},
	}
	if c.Remat { // attention is not computed again
		items = []Item{
			{"activations", "inputs of layers", "4 L N D", Pass, 4 * l * n * d},
			{"activations", "answers of attention, all layers", "w L N q / model", Pass, w * l * n * q / m},
		}
	}
	items = append(items,
		Item{"activations", "log-sums of attention, all layers", "4 L N H / model", Pass, 4 * l * n * int64(cfg.NumAttentionHeads) / m},
		Item{"activations", "rotations, once", "4 N (q + kv) / model", Pass, 4 * n * (q + kv) / m})
	if c.Mesh.FSDP && c.Mesh.Data > 1 { // the backward pass is one layer ahead of the communication
		items = append(items, Item{"workspace", "factors of weights' gradients, the layer before", "w N (4 D + (3 q + 4 kv + 3 F) / model)", Layer, w * n * (4*d + (3*q+4*kv+3*f)/m)})
	}
	return append(items, c.loopScratch()...)
}

// loopScratch lists the larger of the two halves of a layer, which run one after the other.
func (c Config) loopScratch() []Item {
	cfg, m := c.Model, int64(c.Mesh.Model)
	n, b := int64(c.Rows)*int64(c.Length), int64(flash.Block(c.Length, cmp.Or(c.Device.Block, flash.MaxBlock)))
	d, f := int64(cfg.HiddenSize), int64(cfg.IntermediateSize)
	q, kv := int64(cfg.NumAttentionHeads*cfg.HeadDim), int64(cfg.NumKeyValueHeads*cfg.HeadDim)
	counts := struct{ d, q, ofQ, ofKV int64 }{2, 0, 5, 5} // of matrices: in the feed-forward half, then in attention
	if c.Remat {
		counts = struct{ d, q, ofQ, ofKV int64 }{6, 2, 6, 7}
	}
	feed := Item{"workspace", "feed-forward and its gradients, one layer", "N (8 D + 16 F / model)", Layer, 4 * n * (counts.d*d + (counts.q*q+4*f)/m)}
	if c.Remat {
		feed.How = "N (24 D + (8 q + 16 F) / model)"
	}
	attention := []Item{
		{"workspace", "attention and its gradients, one layer", fmt.Sprintf("N (8 D + (%d q + %d kv) / model)", 4*counts.ofQ, 4*counts.ofKV), Layer, 4 * n * (2*d + (counts.ofQ*q+counts.ofKV*kv)/m)},
		{"workspace", "weights of a pair of blocks and their gradient", "12 B H b b / model", Layer, 12 * int64(c.Rows) * int64(cfg.NumAttentionHeads) * b * b / m},
	}
	if feed.Bytes > attention[0].Bytes+attention[1].Bytes {
		return []Item{feed}
	}
	return attention
}
