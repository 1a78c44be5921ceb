package qwen3

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
)

// gradients are those of queries, keys and values for that of the answers, grad
// [N, H, E], with dS = P * (dP - sum dP P) for the scores.
//
// A gradient of keys or values is a product that contracts the first axis of
// both factors. Transposing the small one, [T, E], leaves the one of [T, T] as it is.
func (a fullAttention) gradients(h headwise, p, grad *Node) []*Node {
	outer, factor := leading(2), h.v.DType()
	grad = narrow(grad, factor)
	dp := wide(contract(factor, a.heads(grad), 3, h.v, 3, outer)) // [B, K, G*T, T]
	weighted := Mul(p, dp)
	ds := narrow(Sub(weighted, Mul(p, ReduceAndKeep(weighted, ReduceSum, -1))), factor) // [B, K, G*T, T]

	dq := a.byToken(contract(dtypes.Float32, ds, 3, h.k, 2, outer))         // [N, H, E]
	dk := contract(dtypes.Float32, a.columns(h.queries), 3, ds, 2, outer)   // [B, K, E, T]
	dv := contract(factor, a.columns(grad), 3, narrow(p, factor), 2, outer) // [B, K, E, T]
	return []*Node{MulScalar(dq, a.scale()), a.rows(dk), a.rows(dv)}
}

// columns sorts x [N, H, E] by keys' heads and transposes each: [B, K, E, G*T].
// The CPU backend transposes matrices fast, and blocks of rows.
func (a fullAttention) columns(x *Node) *Node {
	kv, groups, e := a.cfg.NumKeyValueHeads, a.cfg.groups(), a.cfg.HeadDim
	x = swapLast(Reshape(x, a.batch*a.seq, -1))                                    // [H*E, N]
	x = TransposeAllAxes(Reshape(x, kv, groups, e, a.batch, a.seq), 3, 0, 2, 1, 4) // [B, K, E, G, T]
	return Reshape(x, a.batch, kv, e, groups*a.seq)
}

// rows transposes x [B, K, E, T] for each head and sorts it by token: [N, K, E].
func (a fullAttention) rows(x *Node) *Node {
	kv, e := a.cfg.NumKeyValueHeads, a.cfg.HeadDim
	x = TransposeAllAxes(x, 1, 2, 0, 3) // [K, E, B, T]
	return Reshape(swapLast(Reshape(x, kv*e, a.batch*a.seq)), a.batch*a.seq, kv, e)
}

// withGradient gives what is computed from inputs [N, .., E] a gradient of its
// own: for the inputs, made again where a layer is, and the gradient of the
// result, which has the shape and type of the first input except that its type
// may be the last one's. custom is false where GoMLX is told not to exchange
// operations; then there is no result.
//
// GoMLX lets a gradient flow into another node than the one that was computed.
// Here that is a scaffold which nothing executes: it hands the inputs to gradient
// before they ask for theirs.
func withGradient(result func() *Node, gradient func(in []*Node, grad *Node) []*Node, inputs ...*Node) (out *Node, custom bool) {
	var grads []*Node
	last := inputs[len(inputs)-1].DType()
	scaffold := func() *Node {
		joined := make([]*Node, len(inputs))
		for i, x := range inputs {
			joined[i] = wide(IdentityWithCustomGradient(x, func(_, _ *Node) *Node { return grads[i] }))
		}
		first := SliceAxis(Concatenate(joined, 1), 1, AxisRange(0, inputs[0].Shape().Dimensions[1]))
		return IdentityWithCustomGradient(ConvertDType(first, last), func(x, grad *Node) *Node {
			in := below(x, NodeTypeConcatenate).Inputs()
			given := make([]*Node, len(in))
			for i := range in {
				given[i] = below(in[i], NodeTypeIdentity).Inputs()[0]
			}
			grads = gradient(given, grad)
			return grad
		})
	}
	return InternalFusedOpCaller(result, scaffold, true)
}

// below finds a node of a type among x and the first inputs that lead to it.
func below(x *Node, t NodeType) *Node {
	for x.Type() != t {
		x = x.Inputs()[0]
	}
	return x
}
