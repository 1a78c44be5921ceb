package engine

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// sampling holds one number per row of a step.
type sampling struct {
	uniform *graph.Node // [N], the draw in [0, 1)
	scale   *graph.Node // [N], 1 / temperature
	greedy  *graph.Node // [N]; a value above 0 selects the most likely token instead
}

// sample selects one token per row of logits [N, V] by inverting the cumulative
// distribution of softmax(scale * logits) at the draw, and returns it with its
// log-probability under that same distribution: int32 [N], float32 [N]. Columns
// from vocab on are padding with logits far below the others.
//
// The log-probability comes from the operations of loss.Logprobs, over the same
// number of columns, so that the trainer computes the same bits.
//
// The draw has 24 bits and stays below 1, so draw*total rounds to less than the last
// cumulative value. The selected token therefore has a probability above 0.
func sample(logits *graph.Node, vocab int, by sampling) (tokens, logprobs *graph.Node) {
	g, rows := logits.Graph(), logits.Shape().Dimensions[0]
	column := func(n *graph.Node) *graph.Node { return graph.Reshape(n, rows, 1) }
	scaled := graph.Mul(logits, column(by.scale))
	z := graph.Sub(scaled, graph.ReduceAndKeep(scaled, graph.ReduceMax, 1)) // [N, V]
	weights := graph.Exp(z)                                                 // [N, V]
	cumulative := graph.CumSum(weights, 1)
	last := graph.SliceAxis(cumulative, 1, graph.AxisElem(-1)) // [N, 1]
	below := graph.LessOrEqual(cumulative, graph.Mul(last, column(by.uniform)))
	tokens = graph.ReduceSum(graph.ConvertDType(below, dtypes.Int32), 1) // [N]
	likeliest := graph.ArgMax(logits, 1, dtypes.Int32)
	tokens = graph.Where(graph.GreaterThan(by.greedy, graph.ScalarZero(g, dtypes.Float32)), likeliest, tokens)

	chosen := graph.Equal(graph.Iota(g, shapes.Make(dtypes.Int32, weights.Shape().Dimensions...), 1), column(tokens))
	target := graph.ReduceSum(graph.Where(chosen, z, graph.ZerosLike(z)), 1) // [N], a sum with one term
	if vocab < weights.Shape().Dimensions[1] {
		weights = graph.SliceAxis(weights, 1, graph.AxisRange(0, vocab))
	}
	return tokens, graph.Sub(target, graph.Log(graph.ReduceSum(weights, 1)))
}

// scaleOf returns the sampling inputs for a temperature. Greedy decoding
// reports log-probabilities at temperature 1.
func scaleOf(temperature float32) (scale, greedy float32) {
	if temperature == 0 {
		return 1, 1
	}
	return float32(math.Min(1/float64(temperature), math.MaxFloat32)), 0
}
