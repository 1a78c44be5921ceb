package flash

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// Gradient returns the gradients with respect to queries, keys and values, in float32, from
// the one with respect to the answers, grad [N, H, E], the answers o and their logSum. For
// scores S and weights P = e^(S - logSum),
//
//	dV = P^T dO,  dS = P * (dO V^T - sum dO O),  dQ = dS K,  dK = dS^T Q
func (a *Attention) Gradient(q, k, v, o, logSum, grad *graph.Node) (dq, dk, dv *graph.Node) {
	factor := v.DType()
	grad = convert(grad, factor)
	along := graph.ReduceSum(graph.Mul(convert(grad, dtypes.Float32), convert(o, dtypes.Float32)), -1) // [N, H]
	changes := []*graph.Node{
		zeros(grad, dtypes.Float32, a.blocks, a.batch, a.kv, a.groups*a.block, a.dim),
		zeros(grad, dtypes.Float32, a.blocks, a.batch, a.kv, a.block, a.dim),
		zeros(grad, dtypes.Float32, a.blocks, a.batch, a.kv, a.block, a.dim),
	}
	stays := []*graph.Node{a.byBlock(a.scaled(q, factor)), a.byBlock(convert(k, factor)), a.byBlock(v), a.byBlock(grad), logSum, a.numbers(along)}
	if a.segments != nil {
		stays = append(stays, a.segments)
	}
	out := a.loop(changes, stays, a.gradientPair)
	return graph.MulScalar(a.byToken(out[0]), a.scale()), a.byToken(out[1]), a.byToken(out[2])
}

// gradientPair adds the gradients of one pair.
func (a *Attention) gradientPair(p pair, changes, stays []*graph.Node) []*graph.Node {
	dq, dk, dv := changes[0], changes[1], changes[2]
	q, k, v, grad := at(stays[0], p.i), at(stays[1], p.j), at(stays[2], p.j), at(stays[3], p.i)
	logSum, along := at(stays[4], p.i), at(stays[5], p.i)

	weights := graph.Exp(graph.Sub(a.scores(p, q, k, stays), graph.InsertAxes(logSum, -1))) // [B, K, G*b, b]
	towards := graph.Sub(dot(grad, 3, v, 3), graph.InsertAxes(along, -1))
	ds := convert(graph.Mul(weights, towards), v.DType())
	add := func(x, block, i *graph.Node) *graph.Node { return put(x, graph.Add(at(x, i), block), i) }
	return []*graph.Node{
		add(dq, dot(ds, 3, k, 2), p.i),
		add(dk, dot(ds, 2, q, 2), p.j),
		add(dv, dot(convert(weights, v.DType()), 2, grad, 2), p.j),
	}
}

// numbers arranges numbers x [N, H] by block: [n, B, K, G*b].
func (a *Attention) numbers(x *graph.Node) *graph.Node {
	one := *a
	one.dim = 1
	return graph.Squeeze(one.byBlock(graph.InsertAxes(x, -1)), -1)
}
