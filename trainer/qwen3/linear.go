package qwen3

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
)

// linears multiplies x [N, in] by each of the named weights, stored as [out, in], in
// the type of products: [N, out] each.
func (w weights) linears(x *Node, names ...string) []*Node {
	x = narrow(x, w.compute)
	if w.layout != nil {
		out := make([]*Node, len(names))
		for i, name := range names {
			out[i] = w.placed(x.DType(), x, name)
		}
		return out
	}
	ys, width := make([]*Node, len(names)), 0
	for i, name := range names {
		ys[i] = w.node(name)
		width += ys[i].Shape().Dimensions[0]
	}
	out := make([]*Node, len(names))
	for i, y := range ys {
		if w.likeDecode {
			out[i] = productLikeDecode(x, y, width)
		} else {
			out[i] = weighted(x, y, width)
		}
	}
	return out
}

// weighted is the product of x [N, in] and a weight y [out, in]. In float32 neither the
// value nor the gradients copy the weight. The gradient of the weight transposes one
// factor: x, once for all weights that share it, whose widths add up to width; or, where
// that is more, the v of each weight.
func weighted(x, y *Node, width int) *Node {
	if x.DType() != dtypes.Float32 {
		return product(x, y)
	}
	n, in := x.Shape().Dimensions[0], x.Shape().Dimensions[1]
	shared := n*in+in*width < n*width
	out, _ := InternalFusedOpCaller(
		func() *Node { return contract(x.DType(), x, 1, y, 1, nil) },
		func() *Node {
			first := IdentityWithCustomGradient(x, func(_, grad *Node) *Node {
				v, _, ok := factors(grad, dtypes.Float32)
				if !ok {
					return grad
				}
				return contract(dtypes.Float32, v, 1, y, 0, nil)
			})
			second := IdentityWithCustomGradient(y, func(_, grad *Node) *Node { return weightGradient(grad, shared) })
			return contract(x.DType(), first, 1, second, 1, nil)
		}, true)
	return out
}

// weightGradient is v [N, out] transposed times x [N, in]: [out, in].
func weightGradient(grad *Node, transposeX bool) *Node {
	v, x, ok := factors(grad, dtypes.Float32)
	if !ok {
		return grad
	}
	if x.Type() == NodeTypeIdentity { // the node that carries the gradient of x
		x = x.Inputs()[0]
	}
	if transposeX {
		return swapLast(contract(dtypes.Float32, swapLast(x), 1, v, 0, nil))
	}
	return contract(dtypes.Float32, swapLast(v), 1, x, 0, nil)
}
