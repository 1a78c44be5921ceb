package graphs

import (
	"math"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"

	"temper/trainer/model"
	"temper/trainer/xla/flash"
)

// fullAttention is grouped-query attention over whole sequences.
type fullAttention struct {
	cfg        model.Config
	batch, seq int
	segments   *Node            // int32 [B, T]; nil where a row has one segment
	inBlocks   bool             // package blockwise computes the attention; there is no mask then
	inLoops    *flash.Attention // computes the attention where it is not nil; there is no mask then
	same       *Node            // bool [B, T, T], which keys are of the query's segment; nil where a row has one segment
	mask       *Node            // [B, K, G, T, T]
	remat      bool
	plain      bool // softmax; see Options
	// single computes the answers by the one fused operation that DecodeStep uses.
	single bool
}

// newAttention prepares the values that all layers share.
func newAttention(cfg model.Config, in Inputs, opts Options) *fullAttention {
	batch, seq := in.Tokens.Shape().Dimensions[0], in.Tokens.Shape().Dimensions[1]
	a := &fullAttention{cfg: cfg, batch: batch, seq: seq, remat: opts.Remat, plain: opts.PlainSoftmax, segments: in.Segments,
		single: opts.LikeDecode && !opts.Compute.IsHalfPrecision()}
	if in.Segments != nil {
		in.Segments.AssertDims(batch, seq)
	}
	if a.inBlocks = onHost(in.Tokens.Graph()) && !opts.Compute.IsHalfPrecision(); a.inBlocks {
		return a
	}
	if compilesLoops(in.Tokens.Graph()) && seq >= LongCompiledRow {
		a.inLoops = flash.New(flash.Sizes{
			Batch: batch, Tokens: seq, Heads: cfg.NumAttentionHeads, KeyHeads: cfg.NumKeyValueHeads, HeadDim: cfg.HeadDim,
			Block: maxBlock(in.Tokens.Graph()),
		}, in.Segments)
		return a
	}
	a.inMatrices(in.Tokens.Graph())
	return a
}

// inMatrices prepares attention with matrices of scores.
func (a *fullAttention) inMatrices(g *Graph) {
	if a.inBlocks = false; a.segments != nil {
		a.same = Equal(InsertAxes(a.segments, 2), InsertAxes(a.segments, 1))
	}
	a.mask = a.additiveMask(g)
}

// additiveMask is the mask that attention adds to its scores: 0 where a query may look, a large
// negative number elsewhere. It is broadcast to the shape of the scores,
// [B, K, G, T, T], once for all layers, since an addition of equal shapes is fast.
func (a *fullAttention) additiveMask(g *Graph) *Node {
	allowed := InsertAxes(LowerTriangular(g, a.seq), 0) // [1, T, T]
	if a.same != nil {
		allowed = LogicalAnd(BroadcastToShape(allowed, a.same.Shape()), a.same)
	}
	// With half of the range the sum with a score stays finite.
	zero, far := ScalarZero(g, dtypes.Float32), Const(g, float32(-math.MaxFloat32/2))
	mask := InsertAxes(Where(allowed, zero, far), 1, 1) // [B or 1, 1, 1, T, T]
	return BroadcastToDims(mask, a.batch, a.cfg.NumKeyValueHeads, a.cfg.Groups(), a.seq, a.seq)
}

// attend answers queries q [N, H, E] from keys and values k, v [N, K, E], in the
// type of v: [N, H, E].
//
// The gradient is written by hand. The one that GoMLX derives computes the softmax
// twice and copies matrices [T, T] several times.
func (a *fullAttention) attend(q, k, v *Node) *Node {
	if a.inBlocks {
		return a.attendInBlocks(q, k, v)
	}
	if a.inLoops != nil {
		return a.attendInLoops(q, k, v)
	}
	var probs *Node
	answer := func() *Node {
		if a.single {
			return a.fusedAnswers(q, k, v)
		}
		h := a.byHead(q, k, v)
		probs = a.probs(h)
		return a.byToken(contract(v.DType(), narrow(probs, v.DType()), 3, h.v, 2, leading(2)))
	}
	o, custom := withGradients(answer, func(in []*Node, grad *Node) []*Node {
		if a.single { // or a backend may compute the probabilities of all layers at once
			in[0] = SchedulingBarrier(in[0], grad)
		}
		h, p := a.byHead(in[0], in[1], in[2]), probs
		if a.remat || a.single {
			p = a.probs(h)
		}
		return a.gradients(h, p, grad)
	}, q, k, v)
	switch {
	case !custom && a.single: // the backend has no such operation
		a.single = false
		return a.attend(q, k, v)
	case !custom:
		return answer()
	case a.single && a.remat:
		return o.Checkpoint() // where GoMLX recomputes the operation, it returns the queries instead
	}
	return o
}

// fusedAnswers is attend by a single operation of the backend.
func (a *fullAttention) fusedAnswers(q, k, v *Node) *Node {
	byRow := func(x *Node) *Node { return Reshape(x, a.batch, a.seq, x.Shape().Dimensions[1], a.cfg.HeadDim) }
	options := &compute.ScaledDotProductAttentionConfig{Causal: true}
	if a.same != nil {
		options.Mask = InternalBackendOutputs(a.same)[0]
	}
	o, _ := BackendFusedScaledDotProductAttention(byRow(q), byRow(k), byRow(v), compute.AttentionAxesLayoutBSHD, options)
	return Reshape(o, q.Shape().Dimensions...)
}

// headwise holds the factors of attention's products, in the type of the values.
type headwise struct {
	queries *Node // [N, H, E], scaled
	q, k, v *Node // [B, K, G*T, E] of the queries, [B, K, T, E] twice
}

// byHead arranges queries, keys and values by head.
func (a *fullAttention) byHead(q, k, v *Node) headwise {
	q = narrow(MulScalar(q, a.scale()), v.DType())
	return headwise{queries: q, q: a.heads(q), k: a.heads(narrow(k, v.DType())), v: a.heads(v)}
}

// scale is the factor of the scores.
func (a *fullAttention) scale() float64 { return 1 / math.Sqrt(float64(a.cfg.HeadDim)) }

// probs are the weights of the keys for each query: float32 [B, K, G*T, T].
func (a *fullAttention) probs(h headwise) *Node {
	scores := wide(contract(h.q.DType(), h.q, 3, h.k, 3, leading(2))) // [B, K, G*T, T]
	p := a.softmax(Add(Reshape(scores, a.mask.Shape().Dimensions...), a.mask))
	return Reshape(p, scores.Shape().Dimensions...)
}

// softmax is over the last axis.
func (a *fullAttention) softmax(x *Node) *Node {
	if !a.plain {
		return Softmax(x, -1)
	}
	p := Exp(Sub(x, StopGradient(ReduceAndKeep(x, ReduceMax, -1))))
	return Mul(p, Inverse(ReduceAndKeep(p, ReduceSum, -1)))
}

// heads arranges x [N, H or K, E] by key/value head: [B, K, G*T or T, E].
func (a *fullAttention) heads(x *Node) *Node {
	kv, e := a.cfg.NumKeyValueHeads, a.cfg.HeadDim
	x = TransposeAllAxes(Reshape(x, a.batch, a.seq, -1, e), 0, 2, 1, 3) // [B, H or K, T, E]
	return Reshape(x, a.batch, kv, -1, e)
}

// byToken is the inverse of heads.
func (a *fullAttention) byToken(x *Node) *Node {
	e := a.cfg.HeadDim
	x = TransposeAllAxes(Reshape(x, a.batch, -1, a.seq, e), 0, 2, 1, 3) // [B, T, H or K, E]
	return Reshape(x, a.batch*a.seq, -1, e)
}
