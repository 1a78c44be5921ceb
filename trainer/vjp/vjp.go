// Package vjp gives functions of graphs gradients of their own, where those that
// GoMLX derives from the parts cost more. It knows nothing of what is computed.
//
// Invariant: values are those of the function as it stands, to the bit.
package vjp

import (
	"github.com/gomlx/gomlx/core/graph"
)

// With is f(x), whose gradient by x is gradient(x, v) for the gradient v by f(x).
// f is called twice and must build the same nodes each time. Where x is made again
// for the gradient, gradient gets the new one; it must not hold on to others that
// depend on x.
func With(x *graph.Node, f func(x *graph.Node) *graph.Node, gradient func(x, v *graph.Node) *graph.Node) *graph.Node {
	// The second function is never computed: what GoMLX derives from it is a chain
	// of nodes whose ends are replaced, and which nothing reads.
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
