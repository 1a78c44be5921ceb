package flash

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// far is the score of a key that a query may not attend to. It is half of the smallest number,
// so that sums with scores stay finite.
const far = -math.MaxFloat32 / 2

// Answer answers queries q [N, H, E] from keys and values k, v [N, K, E], in the type of v:
// [N, H, E]. It multiplies in that type and adds in float32. logSum is for the gradient.
func (a *Attention) Answer(q, k, v *graph.Node) (o, logSum *graph.Node) {
	rows := a.groups * a.block
	changes := []*graph.Node{
		zeros(q, dtypes.Float32, a.batch, a.kv, rows, a.dim), // answers of a block of queries, times sum
		zeros(q, dtypes.Float32, a.batch, a.kv, rows),        // maximum
		zeros(q, dtypes.Float32, a.batch, a.kv, rows),        // sum of e^(score - maximum)
		zeros(q, v.DType(), a.blocks, a.batch, a.kv, rows, a.dim),
		zeros(q, dtypes.Float32, a.blocks, a.batch, a.kv, rows),
	}
	stays := []*graph.Node{a.byBlock(a.scaled(q, v.DType())), a.byBlock(convert(k, v.DType())), a.byBlock(v)}
	if a.segments != nil {
		stays = append(stays, a.segments)
	}
	out := a.loop(changes, stays, a.answerPair)
	// without a barrier the answers may be kept twice: for later nodes and for the gradient
	kept := graph.OptimizationBarriers(a.byToken(out[3]), out[4])
	return kept[0], kept[1]
}

// answerPair is one step of the online softmax.
func (a *Attention) answerPair(p pair, changes, stays []*graph.Node) []*graph.Node {
	values, top, sum, o, logSum := changes[0], changes[1], changes[2], changes[3], changes[4]
	g := p.i.Graph()
	begin := func(x *graph.Node, with float32) *graph.Node {
		return graph.Where(p.first, graph.BroadcastToShape(graph.Const(g, with), x.Shape()), x)
	}
	values, top, sum = begin(values, 0), begin(top, far), begin(sum, 0)
	scores := a.scores(p, at(stays[0], p.i), at(stays[1], p.j), stays) // [B, K, G*b, b]
	v := at(stays[2], p.j)                                             // [B, K, b, E]

	next := graph.Max(top, graph.ReduceMax(scores, -1)) // [B, K, G*b]
	weights := graph.Exp(graph.Sub(scores, graph.InsertAxes(next, -1)))
	shrink := graph.Exp(graph.Sub(top, next))
	sum = graph.Add(graph.Mul(sum, shrink), graph.ReduceSum(weights, -1))
	values = graph.Add(graph.Mul(values, graph.InsertAxes(shrink, -1)), dot(convert(weights, v.DType()), 3, v, 2))
	// The last pair of a block of queries leaves the answers.
	o = put(o, convert(graph.Div(values, graph.InsertAxes(sum, -1)), o.DType()), p.i)
	logSum = put(logSum, graph.Add(next, graph.Log(sum)), p.i)
	return []*graph.Node{values, next, sum, o, logSum}
}

// scores of a pair: float32 [B, K, G*b, b].
func (a *Attention) scores(p pair, q, k *graph.Node, stays []*graph.Node) *graph.Node {
	s := dot(q, 3, k, 3)
	whole := s.Shape()
	s = graph.Reshape(s, a.batch, a.kv, a.groups, a.block, a.block)
	allowed := graph.BroadcastToShape(graph.InsertAxes(a.allowed(p, stays), 1, 1), s.Shape())
	return graph.Reshape(graph.Where(allowed, s, graph.BroadcastToShape(graph.Const(s.Graph(), float32(far)), s.Shape())), whole.Dimensions...)
}

// allowed returns which keys of a pair a query may attend to: the keys of its segment up to
// itself. bool [B or 1, b, b].
func (a *Attention) allowed(p pair, stays []*graph.Node) *graph.Node {
	g := p.i.Graph()
	square := shapes.Make(dtypes.Int32, 1, a.block, a.block)
	ahead := graph.Mul(graph.Sub(p.i, p.j), graph.Const(g, int32(a.block))) //nolint:gosec // at most the length of a row
	query := graph.Add(graph.Iota(g, square, 1), graph.BroadcastToShape(ahead, square))
	ok := graph.GreaterOrEqual(query, graph.Iota(g, square, 2))
	if a.segments == nil {
		return ok
	}
	segments := stays[len(stays)-1]
	same := graph.Equal(graph.InsertAxes(at(segments, p.i), 2), graph.InsertAxes(at(segments, p.j), 1)) // [B, b, b]
	return graph.LogicalAnd(graph.BroadcastToShape(ok, same.Shape()), same)
}

// dot multiplies x and y over one axis of each, for each row and head, and adds in float32.
func dot(x *graph.Node, axisX int, y *graph.Node, axisY int) *graph.Node {
	product := graph.Dot(x, y)
	if x.DType() != dtypes.Float32 {
		product = product.WithOutputDType(dtypes.Float32)
	}
	outer := []int{0, 1}
	return product.General([]int{axisX}, outer, []int{axisY}, outer)
}
