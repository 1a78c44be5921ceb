package decodeloop

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// uniform is rl.Uniform of seeds, uint64 [N], and positions, int32 [N]: float32 [N].
func uniform(seeds, positions *node) *node {
	at := graph.Add(graph.ConvertDType(positions, dtypes.Uint64), numbersLike(seeds, uint64(0x9e3779b97f4a7c15)))
	bits := mix(graph.BitwiseXor(seeds, mix(at)))
	top := graph.ConvertDType(shifted(bits, 40), dtypes.Float32) // 24 bits: exact
	return graph.Mul(top, numbersLike(top, float32(1.0/(1<<24))))
}

// mix is the finalizer of SplitMix64, as in internal/rl.
func mix(z *node) *node {
	z = graph.Mul(graph.BitwiseXor(z, shifted(z, 30)), numbersLike(z, uint64(0xbf58476d1ce4e5b9)))
	z = graph.Mul(graph.BitwiseXor(z, shifted(z, 27)), numbersLike(z, uint64(0x94d049bb133111eb)))
	return graph.BitwiseXor(z, shifted(z, 31))
}

func shifted(z *node, by uint64) *node { return graph.BitwiseShiftRightLogical(z, numbersLike(z, by)) }

// sampling holds one number for each row.
type sampling struct {
	uniform *node // float32 [N], the draw in [0, 1)
	scale   *node // float32 [N], 1 / temperature
	greedy  *node // bool [N]: the likeliest token instead
}

// sample selects one token per row of logits [N, V], by inverting the cumulative distribution
// of softmax(scale * logits) at the draw, and returns it with its log-probability: int32 [N],
// float32 [N].
//
// The distribution is added up in two levels, blocks of about sqrt(V) tokens and the tokens of
// one block: a sum over all V columns would be V steps one after another on a CPU, or V*V
// additions.
func sample(logits *node, by sampling) (tokens, logprobs *node) {
	g, rows, vocab := logits.Graph(), logits.Shape().Dimensions[0], logits.Shape().Dimensions[1]
	width := 8 * int(math.Ceil(math.Sqrt(float64(vocab))/8))
	blocks := (vocab + width - 1) / width
	column := func(n *node) *node { return graph.Reshape(n, rows, 1) }

	scaled := graph.Mul(logits, column(by.scale))
	z := graph.Sub(scaled, graph.ReduceAndKeep(scaled, graph.ReduceMax, 1)) // [N, V]
	weights := graph.Exp(z)
	if pad := blocks*width - vocab; pad > 0 {
		weights = graph.Concatenate([]*node{weights, graph.BroadcastToDims(graph.Const(g, float32(0)), rows, pad)}, 1)
	}
	weights = graph.Reshape(weights, rows, blocks, width)
	ends := sumsUpTo(graph.ReduceSum(weights, 2)) // [N, blocks]
	total := graph.SliceAxis(ends, 1, graph.AxisElem(-1))
	target := graph.Mul(total, column(by.uniform)) // [N, 1]

	before := graph.LessOrEqual(ends, graph.BroadcastToDims(target, rows, blocks)) // blocks below the draw
	start := graph.ReduceAndKeep(graph.Where(before, ends, numbersLike(ends, float32(0))), graph.ReduceMax, 1)
	block := graph.ReduceSum(graph.ConvertDType(before, dtypes.Int32), 1) // [N]
	block = graph.Min(block, numbersLike(block, int32(blocks-1)))         //nolint:gosec // fewer than tokens
	own := selected(weights, block)                                       // [N, width]
	below := graph.LessOrEqual(graph.Add(sumsUpTo(own), start), graph.BroadcastToDims(target, rows, width))
	inside := graph.ReduceSum(graph.ConvertDType(below, dtypes.Int32), 1)
	inside = graph.Min(inside, lastPositive(own)) // rounding may put the draw behind the last token
	tokens = graph.Add(graph.Mul(block, numbersLike(block, int32(width))), inside)
	tokens = graph.Where(by.greedy, firstGreatest(logits), tokens)

	score := selected(graph.Reshape(z, rows, vocab, 1), tokens) // [N, 1]
	return tokens, graph.Reshape(graph.Sub(score, graph.Log(total)), rows)
}

// firstGreatest is the index of the greatest number in each row of x [N, M], of the first of equals:
// int32 [N]. XLA's CPU compiler has vectors for the two reductions, but none for one of pairs.
func firstGreatest(x *node) *node {
	m := x.Shape().Dimensions[1]
	at := graph.Iota(x.Graph(), shapes.Make(dtypes.Int32, x.Shape().Dimensions...), 1)
	greatest := graph.Equal(x, graph.BroadcastToDims(graph.ReduceAndKeep(x, graph.ReduceMax, 1), x.Shape().Dimensions...))
	return graph.ReduceMin(graph.Where(greatest, at, numbersLike(at, int32(m-1))), 1) //nolint:gosec // a vocabulary
}

// sumsUpTo adds x [N, M] up along each row, in single precision on every device.
func sumsUpTo(x *node) *node {
	g, rows, m := x.Graph(), x.Shape().Dimensions[0], x.Shape().Dimensions[1]
	cube := shapes.Make(dtypes.Int32, rows, m, m)
	upTo := graph.LessOrEqual(graph.Iota(g, cube, 2), graph.Iota(g, cube, 1))
	each := graph.BroadcastToDims(graph.Reshape(x, rows, 1, m), rows, m, m)
	return graph.ReduceSum(graph.Where(upTo, each, numbersLike(each, float32(0))), 2)
}

// selected is the row of x [N, M, C] with an index, int32 [N], for each N: [N, C].
func selected(x, index *node) *node {
	rows := x.Shape().Dimensions[0]
	at := graph.Iota(x.Graph(), shapes.Make(dtypes.Int32, rows, 1), 0)
	return graph.Gather(x, graph.Concatenate([]*node{at, graph.Reshape(index, rows, 1)}, 1))
}

// lastPositive is the index of the last number above 0 in each row of x [N, M]: int32 [N].
func lastPositive(x *node) *node {
	at := graph.Iota(x.Graph(), shapes.Make(dtypes.Int32, x.Shape().Dimensions...), 1)
	return graph.ReduceMax(graph.Where(graph.GreaterThan(x, numbersLike(x, float32(0))), at, numbersLike(at, int32(0))), 1)
}
