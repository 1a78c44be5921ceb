package graphs

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/cpu/attention"
	"temper/trainer/xla/flash"
)

// LongCompiledRow is the length from which XLA computes the attention of rows in loops over
// blocks.
const LongCompiledRow = 1024

// compilesLoops reports whether the backend of a graph compiles loops.
func compilesLoops(g *Graph) bool { return g.Backend().Name() == "xla" }

// maxBlock bounds the blocks of the loops that a graph's backend compiles.
func maxBlock(g *Graph) int {
	if b, ok := g.Backend().(interface{ IsCPU() bool }); ok && b.IsCPU() {
		return flash.MaxBlock
	}
	return flash.MaxBlockGPU
}

// attendInLoops is attend by loops over blocks. The answers and their log-sums are kept for
// the gradient, also where layers are computed again.
func (a *fullAttention) attendInLoops(q, k, v *Node) *Node {
	var kept, logSum *Node
	answer := func() *Node {
		kept, logSum = a.inLoops.Answer(q, k, v)
		return kept
	}
	o, custom := withGradients(answer, func(in []*Node, grad *Node) []*Node {
		dq, dk, dv := a.inLoops.Gradient(in[0], in[1], in[2], kept, logSum, grad)
		return []*Node{dq, dk, narrow(dv, v.DType())}
	}, q, k, v)
	if !custom {
		return answer()
	}
	return o.Checkpoint() // where GoMLX recomputes the operation, it returns the queries instead
}

// attendInBlocks is attend without a matrix of scores.
func (a *fullAttention) attendInBlocks(q, k, v *Node) *Node {
	answer := func() *Node {
		return Reshape(a.call(attention.Answer, oneAxis(q), Concatenate([]*Node{oneAxis(k), oneAxis(v)}, 0)), q.Shape().Dimensions...)
	}
	o, custom := withGradients(answer, func(in []*Node, grad *Node) []*Node {
		// Or a backend may join the factors of all layers at once.
		first := SchedulingBarrier(in[0], grad)
		all := a.call(attention.Gradient, Concatenate([]*Node{oneAxis(first), oneAxis(in[1]), oneAxis(in[2])}, 0), grad)
		grads, at := make([]*Node, len(in)), 0
		for i, x := range in {
			size := x.Shape().Size()
			grads[i] = Reshape(SliceAxis(all, 0, AxisRange(at, at+size)), x.Shape().Dimensions...)
			at += size
		}
		return grads
	}, q, k, v)
	switch {
	case !custom:
		return answer()
	case a.remat:
		return o.Checkpoint() // where GoMLX recomputes the operation, it returns the queries instead
	}
	return o
}

// oneAxis is x along one axis.
func oneAxis(x *Node) *Node { return Reshape(x, -1) }

// call is an operation of package blockwise, written as an attention call of the backend: one
// query for each head of keys of each row, whose numbers are x, with a bias of one number.
// The result has the numbers of x: [size of x].
func (a *fullAttention) call(op attention.Operation, x, y *Node) *Node {
	g, kv := x.Graph(), a.cfg.NumKeyValueHeads
	header := ConstTensor(g, tensors.FromFlatDataAndDimensions(attention.Header(a.batch, a.seq, a.cfg.NumAttentionHeads, kv, a.cfg.HeadDim), attention.HeaderSize))
	if a.segments != nil {
		header = Concatenate([]*Node{header, ConvertDType(oneAxis(a.segments), dtypes.Float32)}, 0)
	}
	bias := ConstTensor(g, tensors.FromFlatDataAndDimensions([]float32{float32(op)}, 1, 1))
	out, _ := BackendFusedScaledDotProductAttention(
		Reshape(x, a.batch, 1, kv, -1), Reshape(y, 1, 1, kv, -1), Reshape(header, 1, 1, 1, -1), compute.AttentionAxesLayoutBSHD,
		&compute.ScaledDotProductAttentionConfig{Bias: InternalBackendOutputs(bias)[0]})
	return oneAxis(out)
}
