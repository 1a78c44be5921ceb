package loss

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// maxChunks bounds the chunks of a vocabulary: each is a handful of nodes, twice.
const maxChunks = 256

// ChunkSize is the largest part of the vocabulary whose logits keep within a
// bound for so many tokens, in nearly equal parts and at most 256 of them; 0
// where all logits at once do, or where the bound is 0.
func ChunkSize(maxLogits, tokens, vocab int) int {
	if maxLogits == 0 || tokens*vocab <= maxLogits {
		return 0
	}
	chunks := min(maxChunks, vocab)
	if most := maxLogits / tokens; most > 0 {
		chunks = min(chunks, (vocab+most-1)/most)
	}
	return (vocab + chunks - 1) / chunks
}

// Chunked is Logprobs from hidden states and the weight of the head, without
// the logits of the whole vocabulary: neither forward nor backward does a node
// hold more than [N, chunk] of them. The running maximum and sum are those of
// "Online normalizer calculation for softmax" (arXiv 1805.02867, algorithm 3);
// the backward pass makes each chunk's logits again.
type Chunked struct {
	// Logprobs and Entropy are those of the function Logprobs, in the shape of
	// the targets. Gradients reach hidden states and head through Surrogate alone.
	Logprobs, Entropy *Node

	hidden, head *Node // [N, D], [V, D]
	targets      *Node // [N]
	scale        float64
	chunk        int
	logSum       *Node // [N], with the maximum: log sum e^x
}

// NewChunked builds the forward pass of hidden states [..., D] with a head
// [V, D] for targets [...], in chunks of the vocabulary. Products are in the
// type of the hidden states, sums in float32.
func NewChunked(hidden, head, targets *Node, temperature float64, chunk int) *Chunked {
	dims := targets.Shape().Dimensions
	hidden.AssertDims(append(append([]int{}, dims...), -1)...)
	head.AssertDims(-1, hidden.Shape().Dimensions[hidden.Rank()-1])
	if !(temperature > 0) || chunk < 1 {
		exceptions.Panicf("temperature %v and chunk %d: want more than 0", temperature, chunk)
	}
	n, depth := targets.Shape().Size(), head.Shape().Dimensions[1]
	c := &Chunked{hidden: Reshape(hidden, n, depth), head: head, targets: Reshape(targets, n), scale: 1 / temperature, chunk: chunk}
	g := hidden.Graph()
	zeros := Zeros(g, shapes.Make(dtypes.Float32, n))
	sum, weighted, target := zeros, zeros, zeros // sum e^z, sum e^z z, x of the target
	var top *Node                                // running maximum: z = x - top
	for from := 0; from < c.vocab(); from += chunk {
		x := c.logits(from, sum) // [N, C]
		next := ReduceMax(x, -1) // [N]
		if top != nil {
			next = Max(top, next)
			shift := Sub(top, next)
			weighted = Mul(Add(weighted, Mul(sum, shift)), Exp(shift))
			sum = Mul(sum, Exp(shift))
		}
		top = next
		z := Sub(x, InsertAxes(top, -1)) // [N, C]
		e := Exp(z)                      // [N, C]
		sum = Add(sum, ReduceSum(e, -1))
		weighted = Add(weighted, ReduceSum(Mul(e, z), -1))
		target = Add(target, ReduceSum(Where(c.isTarget(from, x), x, ZerosLike(x)), -1))
	}
	logSum := Log(sum)
	c.logSum = Add(top, logSum)
	c.Logprobs = Reshape(StopGradient(Sub(Sub(target, top), logSum)), dims...)
	c.Entropy = Reshape(StopGradient(Sub(logSum, Div(weighted, sum))), dims...)
	return c
}

// Surrogate returns a scalar whose gradient, for all that hidden states and head
// depend on, is that of a loss in which Logprobs occur:
//
//	d log p_t / d x = onehot(t) - softmax(x)
//
// Its value says nothing. What the loss depends on besides has no gradient in it.
func (c *Chunked) Surrogate(loss *Node) *Node {
	v := Reshape(StopGradient(Gradient(loss, c.Logprobs)[0]), c.targets.Shape().Size(), 1) // [N, 1]
	dHidden := Zeros(c.hidden.Graph(), shapes.Make(dtypes.Float32, c.hidden.Shape().Dimensions...))
	var dHead []*Node
	last := v
	for from := 0; from < c.vocab(); from += c.chunk {
		x := c.logits(from, last)                                // [N, C]
		p := Exp(Sub(x, StopGradient(InsertAxes(c.logSum, -1)))) // [N, C]
		one := ConvertDType(c.isTarget(from, x), dtypes.Float32)
		dx := narrow(MulScalar(Mul(Sub(one, p), v), c.scale), c.hidden.DType()) // [N, C]
		dHidden = Add(dHidden, wide(dx, 1, c.part(from), 0))                    // [N, D]
		dHead = append(dHead, wide(dx, 0, StopGradient(c.hidden), 0))           // [C, D]
		last = dHidden
	}
	whole := dHead[0]
	if len(dHead) > 1 {
		whole = Concatenate(dHead, 0) // [V, D]
	}
	inner := func(x, grad *Node) *Node { return ReduceAllSum(Mul(narrow(x, dtypes.Float32), StopGradient(grad))) }
	return Add(inner(c.hidden, dHidden), inner(c.head, whole))
}

func (c *Chunked) vocab() int { return c.head.Shape().Dimensions[0] }

// part is a chunk of the head in the type of the hidden states: [C, D].
func (c *Chunked) part(from int) *Node {
	to := min(from+c.chunk, c.vocab())
	return narrow(StopGradient(SliceAxis(c.head, 0, AxisRange(from, to))), c.hidden.DType())
}

// logits are those of a chunk, divided by the temperature, once after is there:
// without that order a backend may make the chunks all at the same time: [N, C].
func (c *Chunked) logits(from int, after *Node) *Node {
	hidden := SchedulingBarrier(StopGradient(c.hidden), after)
	x := wide(hidden, 1, c.part(from), 1)
	if c.scale != 1 {
		x = MulScalar(x, c.scale)
	}
	return x
}

// isTarget marks each token's target in the chunk whose logits are x, once those
// are there, as logits does: [N, C].
func (c *Chunked) isTarget(from int, x *Node) *Node {
	targets := AddScalar(SchedulingBarrier(c.targets, StopGradient(x)), -float64(from)) // [N]
	ids := Iota(x.Graph(), shapes.Make(c.targets.DType(), x.Shape().Dimensions...), 1)
	return Equal(ids, BroadcastToShape(InsertAxes(targets, -1), ids.Shape()))
}

// wide multiplies two matrices over one axis of each and adds up in float32.
func wide(a *Node, axisA int, b *Node, axisB int) *Node {
	dot := Dot(a, b)
	if a.DType() != dtypes.Float32 {
		dot = dot.WithOutputDType(dtypes.Float32)
	}
	return dot.General([]int{axisA}, nil, []int{axisB}, nil)
}

// narrow converts to a type where x has another.
func narrow(x *Node, as dtypes.DType) *Node {
	if x.DType() == as {
		return x
	}
	return ConvertDType(x, as)
}
