package qwen3

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
)

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

// whole is a weight that no product takes, or one whose product has no gradient of ours.
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
