package qwen3

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/support/exceptions"
)

// Inputs are the tokens of a forward pass. Rows are padded on the right; give
// padding a segment of its own, and ignore its hidden states.
type Inputs struct {
	Tokens *Node // int32 [B, T]
	// Positions of the tokens within their sequence, below T; nil means 0..T-1.
	Positions *Node // int32 [B, T]
	// Segments keep packed sequences apart: a token attends to earlier tokens of
	// the same row with an equal segment. nil means one segment per row.
	Segments *Node // int32 [B, T]
}

// Options trade memory for time.
type Options struct {
	// Remat recomputes each layer in the backward pass instead of keeping its
	// activations: about half the memory, about 15 % slower.
	Remat bool
}

// Forward returns the hidden states [B, T, D] after the final norm.
func Forward(scope *model.Scope, cfg Config, in Inputs, opts Options) *Node {
	w := weights{scope: scope, cfg: cfg, g: in.Tokens.Graph()}
	scope.SetTraining(w.g, true)
	in.Tokens.AssertRank(2)
	batch, seq := in.Tokens.Shape().Dimensions[0], in.Tokens.Shape().Dimensions[1]
	mask := attentionMask(w.g, in.Segments, seq)
	positions := in.Positions
	if positions == nil {
		positions = Iota(w.g, shapes.Make(dtypes.Int32, batch, seq), 1)
	}
	rope := newRope(w.g, cfg, positions, seq)

	x := w.embed(in.Tokens) // [B, T, D]
	for i := range cfg.NumHiddenLayers {
		if opts.Remat {
			x = x.Checkpoint()
		}
		q, k, v := w.qkv(i, x, rope) // [B, T, H|K|K, E]
		x = Add(x, w.out(i, attend(cfg, q, k, v, mask)))
		x = Add(x, w.mlp(i, x))
	}
	if opts.Remat {
		x = x.StopCheckpoint()
	}
	return w.norm(nameNorm, x)
}

// Logits maps hidden states [..., D] to scores over the vocabulary [..., V].
func Logits(scope *model.Scope, cfg Config, hidden *Node) *Node {
	w := weights{scope: scope, cfg: cfg, g: hidden.Graph()}
	scope.SetTraining(w.g, true)
	return w.linear(cfg.headName(), hidden)
}

// weights gives graph functions access to the variables of a store.
type weights struct {
	scope *model.Scope
	cfg   Config
	g     *Graph
}

// node returns the variable with the given name as a node.
func (w weights) node(name string) *Node {
	v := w.scope.Store().GetVariable(VariablePath(name))
	if v == nil {
		exceptions.Panicf("weight %s is not in the store: call Init or Import first", name)
	}
	return v.NodeValue(w.g)
}

// embed looks tokens [...] up: [..., D].
func (w weights) embed(tokens *Node) *Node {
	return Gather(w.node(nameEmbed), InsertAxes(tokens, -1))
}

// linear is x [..., in] times a stored [out, in] weight: [..., out].
func (w weights) linear(name string, x *Node) *Node {
	return DotGeneral(x, []int{x.Rank() - 1}, nil, w.node(name), []int{1}, nil)
}

// norm is x / rms(x) * weight over the last axis.
func (w weights) norm(name string, x *Node) *Node {
	ms := ReduceAndKeep(Square(x), ReduceMean, -1) // [..., 1]
	x = Mul(x, Inverse(Sqrt(AddScalar(ms, w.cfg.RMSNormEps))))
	return Mul(x, ExpandLeftToRank(w.node(name), x.Rank()))
}

// qkv projects x [..., D] of layer i to queries [..., H, E], keys and values [..., K, E].
func (w weights) qkv(i int, x *Node, rope rope) (q, k, v *Node) {
	x = w.norm(layerName(i, nameAttnNorm), x)
	q = w.heads(w.linear(layerName(i, nameQ), x), w.cfg.NumAttentionHeads)
	k = w.heads(w.linear(layerName(i, nameK), x), w.cfg.NumKeyValueHeads)
	v = w.heads(w.linear(layerName(i, nameV), x), w.cfg.NumKeyValueHeads)
	q = rope.apply(w.norm(layerName(i, nameQNorm), q))
	k = rope.apply(w.norm(layerName(i, nameKNorm), k))
	return q, k, v
}

// heads splits the last axis: [..., n*E] to [..., n, E].
func (w weights) heads(x *Node, n int) *Node {
	dims := append([]int{}, x.Shape().Dimensions...)
	return Reshape(x, append(dims[:len(dims)-1], n, w.cfg.HeadDim)...)
}

// out merges the heads of an attention result [..., H, E] and projects it to [..., D].
func (w weights) out(i int, x *Node) *Node {
	dims := append([]int{}, x.Shape().Dimensions[:x.Rank()-2]...)
	return w.linear(layerName(i, nameO), Reshape(x, append(dims, w.cfg.NumAttentionHeads*w.cfg.HeadDim)...))
}

// mlp is the SwiGLU of layer i with its norm: [..., D] to [..., D].
func (w weights) mlp(i int, x *Node) *Node {
	x = w.norm(layerName(i, nameMLPNorm), x)
	gate := w.linear(layerName(i, nameGate), x) // [..., F]
	up := w.linear(layerName(i, nameUp), x)     // [..., F]
	return w.linear(layerName(i, nameDown), Mul(Mul(gate, Sigmoid(gate)), up))
}

// attentionMask is what attention adds to its scores: 0 where a query may look,
// a large negative number elsewhere. [B or 1, 1, 1, T, T]
func attentionMask(g *Graph, segments *Node, seq int) *Node {
	allowed := InsertAxes(LowerTriangular(g, seq), 0) // [1, T, T]
	if segments != nil {
		segments.AssertRank(2)
		same := Equal(InsertAxes(segments, 2), InsertAxes(segments, 1)) // [B, T, T]
		allowed = LogicalAnd(BroadcastToShape(allowed, same.Shape()), same)
	}
	// Half of the range leaves room for the score, so that the sum stays finite.
	zero, far := ScalarZero(g, dtypes.Float32), Const(g, float32(-math.MaxFloat32/2))
	return InsertAxes(Where(allowed, zero, far), 1, 1)
}

// attend is grouped-query attention of q [B, T, H, E] over k, v [B, T, K, E]:
// [B, T, H, E]. The axes are brought in order once, so that neither product
// has to transpose.
func attend(cfg Config, q, k, v, mask *Node) *Node {
	b, t, e := q.Shape().Dimensions[0], q.Shape().Dimensions[1], cfg.HeadDim
	kv, groups := cfg.NumKeyValueHeads, cfg.groups()
	q = MulScalar(q, 1/math.Sqrt(float64(e)))
	q = TransposeAllAxes(Reshape(q, b, t, kv, groups, e), 0, 2, 3, 1, 4) // [B, K, G, T, E]
	q = Reshape(q, b, kv, groups*t, e)
	k = TransposeAllAxes(k, 0, 2, 1, 3) // [B, K, T, E]
	v = TransposeAllAxes(v, 0, 2, 1, 3) // [B, K, T, E]
	batch := []int{0, 1}
	scores := DotGeneral(q, []int{3}, batch, k, []int{3}, batch) // [B, K, G*T, T]
	scores = Add(Reshape(scores, b, kv, groups, t, t), mask)
	probs := Reshape(Softmax(scores, -1), b, kv, groups*t, t)
	o := DotGeneral(probs, []int{3}, batch, v, []int{2}, batch) // [B, K, G*T, E]
	o = TransposeAllAxes(Reshape(o, b, kv, groups, t, e), 0, 3, 1, 2, 4)
	return Reshape(o, b, t, cfg.NumAttentionHeads, e)
}
