package decodeloop

// Axes: R rows of tokens, N slots, L tokens of context, A tokens ahead, S = L and the whole blocks of A, D model,
// K key/value heads, G query heads for each of them, E numbers of a head, F feed-forward, V vocabulary,
// Y numbers of a token in the cache.

import (
	"math"

	"github.com/gomlx/gomlx/core/graph"

	"temper/trainer/model"
)

type node = graph.Node

// network is the policy inside one program.
type network struct {
	cfg      model.Config
	weights  map[string]*node
	cos, sin *node // [R, 1, E/2], of the positions of the tokens
}

var _ model.Ops[*node] = network{}

// groups is G.
func (n network) groups() int { return n.cfg.Groups() }

// Norm is x / rms(x) * weight over the last axis.
func (n network) Norm(weight string, x *node) *node {
	dims := x.Shape().Dimensions
	sum := graph.ReduceAndKeep(graph.Mul(x, x), graph.ReduceSum, -1)
	ms := graph.Mul(sum, numbersLike(sum, float32(1/float64(dims[len(dims)-1]))))
	scale := graph.Rsqrt(graph.Add(ms, numbersLike(ms, float32(n.cfg.RMSNormEps))))
	return graph.Mul(graph.Mul(x, scale), graph.ExpandLeftToRank(n.weights[weight], x.Rank()))
}

// HeadNorm is Norm for x [R, heads, E].
func (n network) HeadNorm(weight string, x *node) *node { return n.Norm(weight, x) }

// product is x [R, in] times a weight [in, out].
func product(x, w *node) *node { return graph.DotGeneral(x, []int{1}, nil, w, []int{0}, nil) }

// embed looks tokens [R] up: [R, D].
func (n network) embed(tokens *node) *node {
	return graph.Gather(n.weights[model.NameEmbed], graph.InsertAxes(tokens, -1))
}

// at is the network for tokens at positions [R].
func (n network) at(positions *node) network {
	both := graph.Gather(n.weights[nameRope], graph.InsertAxes(positions, -1)) // [R, E]
	both = graph.InsertAxes(both, 1)
	half := n.cfg.HeadDim / 2
	n.cos, n.sin = graph.SliceAxis(both, 2, graph.AxisRange(0, half)), graph.SliceAxis(both, 2, graph.AxisRangeToEnd(half))
	return n
}

// Rotate turns the halves of x [R, heads, E].
func (n network) Rotate(x *node) *node {
	half := x.Shape().Dimensions[2] / 2
	a, b := graph.SliceAxis(x, 2, graph.AxisRange(0, half)), graph.SliceAxis(x, 2, graph.AxisRangeToEnd(half))
	return graph.Concatenate([]*node{
		graph.Sub(graph.Mul(a, n.cos), graph.Mul(b, n.sin)), graph.Add(graph.Mul(b, n.cos), graph.Mul(a, n.sin)),
	}, 2)
}

// linear is the product of x [R, in] and the weights that begin with l, side by side, and
// their biases.
func (n network) linear(l model.Linear, x *node) *node {
	y := product(x, n.weights[l.Weight])
	if l.Bias != "" {
		y = graph.Add(y, graph.BroadcastToDims(graph.InsertAxes(n.weights[l.Bias], 0), y.Shape().Dimensions...))
	}
	return y
}

// ProjectQKV projects x [R, D] to heads [R, K*G|K|K, E].
func (n network) ProjectQKV(l *model.Layer, x *node) (q, k, v *node) {
	heads, kv := n.cfg.NumAttentionHeads, n.cfg.NumKeyValueHeads
	all := graph.Reshape(n.linear(l.Q, x), x.Shape().Dimensions[0], heads+2*kv, n.cfg.HeadDim)
	part := func(from, to int) *node { return graph.SliceAxis(all, 1, graph.AxisRange(from, to)) }
	return part(0, heads), part(heads, heads+kv), part(heads+kv, heads+2*kv)
}

// GateUp projects x [R, D] to [R, F] twice.
func (n network) GateUp(l *model.Layer, x *node) (gate, up *node) {
	both := n.linear(l.Gate, x)
	return graph.SliceAxis(both, 1, graph.AxisRange(0, l.Gate.Out)), graph.SliceAxis(both, 1, graph.AxisRangeToEnd(l.Gate.Out))
}

// Gated is SwiGLU's product.
func (n network) Gated(gate, up *node) *node {
	return graph.Mul(graph.Mul(gate, graph.Sigmoid(gate)), up)
}

// Linear projects x [R, in] to [R, out].
func (n network) Linear(l model.Linear, x *node) *node { return n.linear(l, x) }

// finish adds the answers of attention [R, K*G*E] and the feed-forward part to x [R, D].
func (n network) finish(l *model.Layer, x, answers *node) *node {
	x = graph.Add(x, n.linear(l.O, answers))
	return graph.Add(x, model.FeedForward(n, l, x))
}

// logits maps x [R, D] to [R, V].
func (n network) logits(x *node) *node {
	return product(n.Norm(model.NameNorm, x), n.weights[model.NameHead])
}

// attention answers queries [B, K, M, E], of which each sees the keys [B, K, E, S] and values
// [B, K, S, E] for which seen, bool [B, 1, M or 1, S], holds: [B, K, M, E].
func attention(q, keys, values, seen *node) *node {
	q = graph.Mul(q, numbersLike(q, float32(1/math.Sqrt(float64(q.Shape().Dimensions[3])))))
	scores := scoresOf(q, keys)
	scores = graph.Where(graph.BroadcastToDims(seen, scores.Shape().Dimensions...), scores, numbersLike(scores, float32(unseen)))
	weights := graph.Exp(graph.Sub(scores, graph.ReduceAndKeep(scores, graph.ReduceMax, -1)))
	sums := graph.ReduceAndKeep(weights, graph.ReduceSum, -1) // [B, K, M, 1]
	return graph.Div(graph.DotGeneral(weights, []int{3}, []int{0, 1}, values, []int{2}, []int{0, 1}), sums)
}

// smallHead is the size of a head up to which scores are written as sums. XLA's CPU compiler has no
// vectors for the many small products of decoding, but for sums of as many terms.
const smallHead = 32

// scoresOf multiplies queries [B, K, M, E] and keys [B, K, E, S]: [B, K, M, S].
func scoresOf(q, keys *node) *node {
	d, m := keys.Shape().Dimensions, q.Shape().Dimensions[2]
	if d[2] > smallHead || m > smallHead { // a prompt has large products
		return graph.DotGeneral(q, []int{3}, []int{0, 1}, keys, []int{2}, []int{0, 1})
	}
	var sum *node
	for e := range d[2] {
		one := graph.BroadcastToDims(graph.SliceAxis(q, 3, graph.AxisElem(e)), d[0], d[1], m, d[3])
		term := graph.Mul(one, graph.BroadcastToDims(graph.SliceAxis(keys, 2, graph.AxisElem(e)), d[0], d[1], m, d[3]))
		if sum == nil {
			sum = term
			continue
		}
		sum = graph.Add(sum, term)
	}
	return sum
}

// numbersLike repeats a number in the shape of x. The constants that GoMLX makes for itself are shared
// by a whole graph, and XLA has none that the closures of a loop could share.
func numbersLike[T float32 | int32 | uint64](x *node, v T) *node {
	return graph.BroadcastToDims(graph.Const(x.Graph(), v), x.Shape().Dimensions...)
}

// unseen is the score of a key that a query may not see: its weight is exactly 0.
const unseen = -1e30
