package qwen3

import (
	. "github.com/gomlx/gomlx/core/graph"

	"temper/trainer/vjp"
)

// silu is x s with s = sigma(x), element by element. Its derivative is written as
// s + u (1 - s) with u = x s, which takes two operations less than the derivative that
// GoMLX composes.
func silu(x *Node) *Node {
	value := func(x *Node) *Node { return Mul(x, Sigmoid(x)) }
	return vjp.With(x, value, func(x, v *Node) *Node {
		s, u := Sigmoid(x), value(x)
		return Mul(v, Add(Sub(u, Mul(u, s)), s))
	})
}
