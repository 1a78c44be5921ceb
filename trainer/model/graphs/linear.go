package graphs

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"

	"temper/trainer/model"
)

// linears multiplies x [N, in] by each of the weights, stored as [out, in], in the type of
// products, and adds the biases: [N, out] each.
func (w weights) linears(x *Node, linears ...model.Linear) []*Node {
	out := w.products(narrow(x, w.compute), linears)
	for i, l := range linears {
		if l.Bias != "" {
			out[i] = Add(out[i], ExpandLeftToRank(narrow(w.node(l.Bias), out[i].DType()), 2))
		}
	}
	return out
}

// products multiplies x [N, in] by each of the weights.
func (w weights) products(x *Node, linears []model.Linear) []*Node {
	out := make([]*Node, len(linears))
	if w.layout != nil {
		for i, l := range linears {
			out[i] = w.placed(x.DType(), x, l.Weight)
		}
		return out
	}
	ys, width := make([]*Node, len(linears)), 0
	for i, l := range linears {
		ys[i] = w.node(l.Weight)
		width += l.Out
	}
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

// Merged is a weight [out, in] with its adapters, as the network computes with it.
func Merged(cfg model.Config, weight, a, b *Node) *Node {
	return Add(weight, MulScalar(contract(weight.DType(), b, 1, a, 0, nil), cfg.LoRA.Scale()))
}

// Layout places the values of a graph on several devices, each of which holds a part of
// every weight and the tokens of some rows.
type Layout interface {
	// Tokens keeps values for each token, [N, ...], with their rows.
	Tokens(x *Node) *Node
	// Whole puts the named weight together where the tokens are, not before the value
	// after is there; nil does not wait.
	Whole(name string, w, after *Node) *Node
	// Own gives each device its part of the gradient of the named weight.
	Own(name string, gradient *Node) *Node
}

// tokens places values for each token, where there is a layout.
func (w weights) tokens(x *Node) *Node {
	if w.layout == nil {
		return x
	}
	return w.layout.Tokens(x)
}

// whole returns a weight outside of products, or one whose product uses GoMLX's gradient.
func (w weights) whole(name string) *Node {
	if w.layout == nil {
		return w.node(name)
	}
	y := IdentityWithCustomGradient(w.node(name), func(_, grad *Node) *Node { return w.layout.Own(name, grad) })
	return w.layout.Whole(name, y, nil)
}

// placed is the product of x [N, in] and a named weight [out, in] under a layout:
// [N, out]. It multiplies in x's type and adds in float32. The weight is gathered in
// that type, for the gradient of x a second time, so that it does not stay until then.
func (w weights) placed(result dtypes.DType, x *Node, name string) *Node {
	factor, y := x.DType(), w.node(name)
	first := IdentityWithCustomGradient(w.tokens(x), func(_, grad *Node) *Node {
		v, _, ok := factors(grad, factor)
		if !ok {
			return grad
		}
		v = w.tokens(v)
		return w.tokens(contract(factor, v, 1, w.layout.Whole(name, narrow(y, factor), v), 0, nil))
	})
	second := IdentityWithCustomGradient(y, func(_, grad *Node) *Node {
		v, x, ok := factors(grad, factor)
		if !ok {
			return w.layout.Own(name, grad)
		}
		return w.layout.Own(name, contract(dtypes.Float32, w.tokens(v), 0, w.tokens(x), 0, nil))
	})
	return w.tokens(contract(result, first, 1, w.layout.Whole(name, narrow(second, factor), nil), 1, nil))
}
