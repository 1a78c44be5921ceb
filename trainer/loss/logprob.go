package loss

import (
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"

	"temper/trainer/model"
)

// Logprobs returns for each token log p(target) under softmax(logits /
// temperature), and the entropy of that distribution in nats. The entropy
// carries no gradient: the recipe has no entropy bonus (rStar2-Agent,
// arXiv 2508.20722, section 2.2).
//
// Only a maximum, two sums and one element are computed over the vocabulary axis,
// and no logarithm. Chunked merges those four from chunk to chunk. The gradient is
// one product over that axis, with one element added to it.
//
//	log p = z[target] - log s,  H = log s - sum(e^z z) / s
//	z = x - max x,  s = sum e^z,  x = logits / temperature
//	d log p / d x = onehot(target) - e^z / s
func Logprobs(logits, targets *Node, temperature float64) (logprobs, entropy *Node) {
	tokens := targets.Shape().Dimensions
	logits.AssertRank(targets.Rank() + 1)
	logits.AssertDims(append(append([]int{}, tokens...), -1)...)
	if !(temperature > 0) {
		exceptions.Panicf("temperature %v: want more than 0", temperature)
	}
	n, vocab := targets.Shape().Size(), logits.Shape().Dimensions[logits.Rank()-1]
	x := Reshape(logits, n, vocab) // [N, V]
	if temperature != 1 {
		x = MulScalar(x, 1/temperature)
	}
	rows := Iota(logits.Graph(), shapes.Make(targets.DType(), n), 0) // [N]
	at := Stack([]*Node{rows, Reshape(targets, n)}, -1)              // [N, 2]

	z := func(x *Node) *Node { return Sub(x, ReduceAndKeep(x, ReduceMax, -1)) } // [N, V]
	sum := func(x *Node) *Node { return ReduceSum(Exp(z(x)), -1) }              // [N]
	logprobs = model.WithGradient(x,
		func(x *Node) *Node { return Sub(Gather(z(x), at), Log(sum(x))) }, // [N]
		func(x, v *Node) *Node {
			softmax := Mul(Exp(z(x)), InsertAxes(Neg(Div(v, sum(x))), -1)) // [N, V]
			return ScatterSum(softmax, at, v, true, true)
		})
	weighted := ReduceSum(Mul(Exp(z(x)), z(x)), -1) // [N]
	entropy = StopGradient(Sub(Log(sum(x)), Div(weighted, sum(x))))
	return Reshape(logprobs, tokens...), Reshape(entropy, tokens...)
}
