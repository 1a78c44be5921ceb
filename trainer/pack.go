package trainer

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"temper/trainer/qwen3"
)

// packAlign is the grid on which packed sequences start. A vector of the CPU
// backend has 16 lanes: on this grid each token of a sequence meets the lane it
// would meet in a row of its own, so that its attention has the same bits.
const packAlign = 16

// microbatches cuts the rows of a minibatch into device passes.
func (t *Trainer) microbatches(rows []*row) []microbatch {
	if t.cfg.Pack {
		return t.spread.rows(packed(rows, t.cfg.passTokens()))
	}
	return t.spread.rows(microbatches(rows, t.cfg.passTokens()))
}

// packed puts several sequences into each row of a pass: the longest first, each
// into the first row that has room (first-fit decreasing, which needs at most
// 11/9 of the fewest possible rows). All rows are as long as the longest
// sequence needs, rounded up by packedLength.
//
// Attention works on whole rows: T*T scores for each of H heads, whatever stands
// in the row. For the backward pass 4*H*T*T bytes of probabilities stay per row
// and layer (of one layer with Remat), the mask takes as much once, and the layer
// being computed a few times that.
func packed(rows []*row, tokens int) []microbatch {
	if len(rows) == 0 {
		return nil
	}
	sorted := byLength(rows)
	length := packedLength(sorted[0].length)
	var lines []line
	var used []int
	for _, r := range sorted {
		i := slices.IndexFunc(used, func(u int) bool { return u+r.length <= length })
		if i < 0 {
			i = len(lines)
			lines, used = append(lines, line{length: length}), append(used, 0)
		}
		lines[i].members, lines[i].starts = append(lines[i].members, r), append(lines[i].starts, used[i])
		used[i] += (r.length + packAlign - 1) / packAlign * packAlign
	}
	out := cut(lines, tokens)
	for i := range out {
		out[i].packed = true
	}
	return out
}

// packedLength rounds up to a power of two, at least 64: shorter sequences fill
// a row, so that few lengths, and few graphs, do.
func packedLength(n int) int {
	length := 64
	for length < n {
		length *= 2
	}
	return length
}

// layout is what keeps packed sequences apart, int32 [3, B, T]: the tokens, their
// positions in their sequences, and segments, 0 for padding.
func (mb microbatch) layout(tokens []int32) []int32 {
	n := len(tokens)
	out := make([]int32, 3*n)
	copy(out, tokens)
	for i, r := range mb.members {
		for p := range r.length {
			out[n+mb.starts[i]+p], out[2*n+mb.starts[i]+p] = int32(p), int32(i+1)
		}
	}
	return out
}

// modelInputs takes inTokens apart.
func modelInputs(tokens *graph.Node) qwen3.Inputs {
	if tokens.Rank() == 2 {
		// Rows are padded on the right, where causal attention never looks, so that
		// the padding needs no segment of its own.
		return qwen3.Inputs{Tokens: tokens}
	}
	dims := tokens.Shape().Dimensions[1:]
	part := func(i int) *graph.Node { return graph.Reshape(graph.SliceAxis(tokens, 0, graph.AxisElem(i)), dims...) }
	return qwen3.Inputs{Tokens: part(0), Positions: part(1), Segments: part(2)}
}
