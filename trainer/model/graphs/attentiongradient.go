package graphs

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
)

// gradients returns the gradients with respect to queries, keys and values, given the
// one with respect to the answers, grad [N, H, E]. For the scores,
// dS = P * (dP - sum dP P).
//
// The gradient of keys or values is a product over the first axis of both factors.
// The smaller factor, [T, E], is transposed, so that the factor [T, T] is not.
func (a *fullAttention) gradients(h headwise, p, grad *Node) []*Node {
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

// columns arranges x [N, H, E] by key/value head and transposes each head:
// [B, K, E, G*T]. The CPU backend is fast at transposing matrices, and at moving whole
// rows.
func (a *fullAttention) columns(x *Node) *Node {
	kv, groups, e := a.cfg.NumKeyValueHeads, a.cfg.Groups(), a.cfg.HeadDim
	x = swapLast(Reshape(x, a.batch*a.seq, -1))                                    // [H*E, N]
	x = TransposeAllAxes(Reshape(x, kv, groups, e, a.batch, a.seq), 3, 0, 2, 1, 4) // [B, K, E, G, T]
	return Reshape(x, a.batch, kv, e, groups*a.seq)
}

// rows transposes each head of x [B, K, E, T] and arranges the result by token:
// [N, K, E].
func (a *fullAttention) rows(x *Node) *Node {
	kv, e := a.cfg.NumKeyValueHeads, a.cfg.HeadDim
	x = TransposeAllAxes(x, 1, 2, 0, 3) // [K, E, B, T]
	return Reshape(swapLast(Reshape(x, kv*e, a.batch*a.seq)), a.batch*a.seq, kv, e)
}

// withGradients gives a result that is computed from inputs [N, .., E] a gradient
// written by hand. gradient gets the inputs, recomputed where the layer is
// rematerialised, and the gradient of the result. The result has the shape of the
// first input and the type of the last. custom is false where GoMLX may not replace
// operations; there is no result then.
//
// GoMLX can send a gradient into another node than the computed one. Here
// that node is a scaffold that nothing executes: it passes its inputs to gradient
// before GoMLX asks for the gradient of each.
func withGradients(result func() *Node, gradient func(in []*Node, grad *Node) []*Node, inputs ...*Node) (out *Node, custom bool) {
	var grads []*Node
	last := inputs[len(inputs)-1].DType()
	scaffold := func() *Node {
		joined := make([]*Node, len(inputs))
		for i, x := range inputs {
			joined[i] = wide(IdentityWithCustomGradient(x, func(_, _ *Node) *Node { return grads[i] }))
		}
		first := SliceAxis(Concatenate(joined, 1), 1, AxisRange(0, inputs[0].Shape().Dimensions[1]))
		return IdentityWithCustomGradient(ConvertDType(first, last), func(x, grad *Node) *Node {
			in := firstAncestor(x, NodeTypeConcatenate).Inputs()
			given := make([]*Node, len(in))
			for i := range in {
				given[i] = firstAncestor(in[i], NodeTypeIdentity).Inputs()[0]
			}
			grads = gradient(given, grad)
			return grad
		})
	}
	return InternalFusedOpCaller(result, scaffold, true)
}

// firstAncestor follows first inputs from x to a node of the given type.
func firstAncestor(x *Node, t NodeType) *Node {
	for x.Type() != t {
		x = x.Inputs()[0]
	}
	return x
}

// gradientOrder makes the backward pass compute the gradients of a layer's weights before it
// continues with the next layer. On a mesh XLA would compute all of them at the end, and keep
// their factors.
type gradientOrder struct {
	weights [][]*Node // gradients, by layer
	// behind lets the backward pass be a layer ahead, so that sending gradients over
	// the data axis can take the time of a layer.
	behind bool
}

// layer marks the input of the next layer.
func (o *gradientOrder) layer(x *Node) *Node {
	if o == nil {
		return x
	}
	at := len(o.weights)
	if o.weights = append(o.weights, nil); o.behind {
		at++
	}
	return IdentityWithCustomGradient(x, func(_, grad *Node) *Node {
		if at >= len(o.weights) || len(o.weights[at]) == 0 {
			return grad
		}
		return OptimizationBarriers(append([]*Node{grad}, o.weights[at]...)...)[0]
	})
}

// weight marks a weight of the layer.
func (o *gradientOrder) weight(y *Node) *Node {
	if o == nil || len(o.weights) == 0 {
		return y
	}
	at := len(o.weights) - 1
	return IdentityWithCustomGradient(y, func(_, grad *Node) *Node {
		o.weights[at] = append(o.weights[at], grad)
		return grad
	})
}
