package qwen3

import (
	"math"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
)

// fullAttention is grouped-query attention over whole sequences.
type fullAttention struct {
	cfg        Config
	batch, seq int
	mask       *Node // [B, K, G, T, T]
	// fused makes the answers by the single operation that DecodeStep uses.
	fused bool
	same  *Node // bool [B, T, T], the keys of each query's segment; nil where a row is one
	remat bool
}

func newAttention(cfg Config, in Inputs, opts Options) fullAttention {
	batch, seq := in.Tokens.Shape().Dimensions[0], in.Tokens.Shape().Dimensions[1]
	a := fullAttention{cfg: cfg, batch: batch, seq: seq, remat: opts.Remat,
		mask: attentionMask(cfg, in.Segments, in.Tokens.Graph(), batch, seq)}
	if opts.LikeDecode && !opts.Compute.IsHalfPrecision() {
		a.fused = true
		if in.Segments != nil {
			a.same = Equal(InsertAxes(in.Segments, 2), InsertAxes(in.Segments, 1))
		}
	}
	return a
}

// attentionMask is what attention adds to its scores: 0 where a query may look,
// a large negative number elsewhere. It is spread to the scores' shape
// [B, K, G, T, T] once for all layers, which then add it at full speed.
func attentionMask(cfg Config, segments *Node, g *Graph, batch, seq int) *Node {
	allowed := InsertAxes(LowerTriangular(g, seq), 0) // [1, T, T]
	if segments != nil {
		segments.AssertRank(2)
		same := Equal(InsertAxes(segments, 2), InsertAxes(segments, 1)) // [B, T, T]
		allowed = LogicalAnd(BroadcastToShape(allowed, same.Shape()), same)
	}
	// Half of the range leaves room for the score, so that the sum stays finite.
	zero, far := ScalarZero(g, dtypes.Float32), Const(g, float32(-math.MaxFloat32/2))
	mask := InsertAxes(Where(allowed, zero, far), 1, 1) // [B or 1, 1, 1, T, T]
	return BroadcastToDims(mask, batch, cfg.NumKeyValueHeads, cfg.groups(), seq, seq)
}

// attend answers queries q [N, H, E] from keys and values k, v [N, K, E], in the
// type of v: [N, H*E].
//
// Values are transposed once, so that no product transposes a [T, T] matrix,
// neither on the way forward nor in a gradient.
func (a fullAttention) attend(q, k, v *Node) *Node {
	if !a.fused {
		return a.byProducts(q, k, v)
	}
	b, t, n := a.batch, a.seq, a.batch*a.seq
	heads := func(x *Node) *Node { return Reshape(x, b, t, x.Shape().Dimensions[1], a.cfg.HeadDim) }
	o, fused := InternalFusedOpCaller(func() *Node {
		options := &compute.ScaledDotProductAttentionConfig{Causal: true}
		if a.same != nil {
			options.Mask = InternalBackendOutputs(a.same)[0]
		}
		o, _ := BackendFusedScaledDotProductAttention(heads(q), heads(k), heads(v), compute.AttentionAxesLayoutBSHD, options)
		return o
	}, func() *Node { return Reshape(a.byProducts(q, k, v), b, t, a.cfg.NumAttentionHeads, a.cfg.HeadDim) }, true)
	if fused && a.remat {
		// GoMLX makes a copy of this operation that returns its queries.
		o = o.Checkpoint()
	}
	return Reshape(o, n, -1)
}

func (a fullAttention) byProducts(q, k, v *Node) *Node {
	b, t, e := a.batch, a.seq, a.cfg.HeadDim
	h, kv, groups := a.cfg.NumAttentionHeads, a.cfg.NumKeyValueHeads, a.cfg.groups()
	q = narrow(MulScalar(q, 1/math.Sqrt(float64(e))), v.DType())
	k = narrow(k, v.DType())
	q = TransposeAllAxes(Reshape(q, b, t, h, e), 0, 2, 1, 3)       // [B, H, T, E]
	k = TransposeAllAxes(Reshape(k, b, t, kv, e), 0, 2, 1, 3)      // [B, K, T, E]
	v = TransposeAllAxes(Reshape(v, b, t, kv, e), 0, 2, 3, 1)      // [B, K, E, T]
	scores := wide(product(Reshape(q, b, kv, groups*t, e), k))     // [B, K, G*T, T]
	scores = Add(Reshape(scores, b, kv, groups, t, t), a.mask)     // [B, K, G, T, T]
	probs := Reshape(Softmax(scores, -1), b, kv, groups*t, t)      // [B, K, G*T, T]
	o := Reshape(product(narrow(probs, v.DType()), v), b, h, t, e) // [B, H, T, E]
	return Reshape(TransposeAllAxes(o, 0, 2, 1, 3), b*t, h*e)
}
