package graphs

import (
	"github.com/gomlx/gomlx/core/graph"
)

// WithGradient returns f(x) with a gradient written by hand (a vector-Jacobian product), where the
// one that GoMLX derives costs more. The value is the function's, to the bit. When v is the gradient with respect to f(x), the gradient with
// respect to x is gradient(x, v). f is called twice and must build the same nodes
// each time. Rematerialisation builds x a second time for the backward pass and hands
// that node to gradient, which must not use older nodes that depend on x.
func WithGradient(x *graph.Node, f func(x *graph.Node) *graph.Node, gradient func(x, v *graph.Node) *graph.Node) *graph.Node {
	// Nothing executes the second function. It exists for GoMLX to derive a gradient
	// from: a chain of nodes whose two ends have custom gradients.
	out, _ := graph.InternalFusedOpCaller(func() *graph.Node { return f(x) }, func() *graph.Node {
		var v *graph.Node
		x := graph.IdentityWithCustomGradient(x, func(x, _ *graph.Node) *graph.Node { return gradient(x.Inputs()[0], v) })
		return graph.IdentityWithCustomGradient(f(x), func(_, grad *graph.Node) *graph.Node {
			v = grad
			return grad
		})
	}, true)
	return out
}
