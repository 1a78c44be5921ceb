package loss

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// maxChunks bounds the chunks of a vocabulary, since each adds about ten nodes to the forward
// graph and as many to the backward graph.
const maxChunks = 256

// ChunkSize returns the size of the chunks into which the vocabulary is cut, so that the logits
// of one chunk for all tokens are at most maxLogits numbers. The chunks have nearly equal sizes,
// and there are at most 256. It is 0 if the whole vocabulary is within the bound, or if
// maxLogits is 0.
// bound, or where maxLogits is 0.
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

// Chunked computes Logprobs from hidden states and the weight of the head without the
// logits of the whole vocabulary. No node, forward or backward, holds more than
// [N, chunk] of them. The running maximum and sum follow "Online normalizer
// calculation for softmax" (arXiv 1805.02867, algorithm 3). The backward pass computes
// the logits of each chunk a second time.
type Chunked struct {
	// Logprobs and Entropy are the results of the function Logprobs, in the shape of
	// the targets. They carry no gradient to hidden states and head; Surrogate does.
	Logprobs, Entropy *Node

	hidden, head *Node // [N, D], [V, D]
	targets      *Node // [N]
	scale        float64
	chunk        int
	logSum       *Node // [N], log sum e^x
}

// NewChunked builds the forward pass for hidden states [..., D], a head [V, D] and
// targets [...]. Products are in the type of the hidden states, sums in float32.
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
		x := c.logits(from, sum, weighted, target) // [N, C]
		next := ReduceMax(x, -1)                   // [N]
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

// Surrogate returns a scalar to differentiate instead of a loss that was built from Logprobs.
// Below hidden states and head, its gradient is the gradient of the loss:
//
//	d log p_t / d x = onehot(t) - softmax(x)
//
// Its value has no meaning. It has no gradient to anything else in the loss.
func (c *Chunked) Surrogate(loss *Node) *Node {
	v := Reshape(StopGradient(Gradient(loss, c.Logprobs)[0]), c.targets.Shape().Size(), 1) // [N, 1]
	dHidden := Zeros(c.hidden.Graph(), shapes.Make(dtypes.Float32, c.hidden.Shape().Dimensions...))
	var dHead []*Node
	last := []*Node{v}
	for from := 0; from < c.vocab(); from += c.chunk {
		x := c.logits(from, last...)                             // [N, C]
		p := Exp(Sub(x, StopGradient(InsertAxes(c.logSum, -1)))) // [N, C]
		one := ConvertDType(c.isTarget(from, x), dtypes.Float32)
		dx := convertTo(MulScalar(Mul(Sub(one, p), v), c.scale), c.hidden.DType()) // [N, C]
		dHidden = Add(dHidden, dotInFloat32(dx, 1, c.headChunk(from), 0))          // [N, D]
		dHead = append(dHead, dotInFloat32(dx, 0, StopGradient(c.hidden), 0))      // [C, D]
		last = []*Node{dHidden, dHead[len(dHead)-1]}
	}
	whole := dHead[0]
	if len(dHead) > 1 {
		whole = Concatenate(dHead, 0) // [V, D]
	}
	inner := func(x, grad *Node) *Node { return ReduceAllSum(Mul(convertTo(x, dtypes.Float32), StopGradient(grad))) }
	return Add(inner(c.hidden, dHidden), inner(c.head, whole))
}

func (c *Chunked) vocab() int { return c.head.Shape().Dimensions[0] }

// headChunk returns a chunk of the head in the type of the hidden states: [C, D].
func (c *Chunked) headChunk(from int) *Node {
	to := min(from+c.chunk, c.vocab())
	return convertTo(StopGradient(SliceAxis(c.head, 0, AxisRange(from, to))), c.hidden.DType())
}

// logits returns the logits of a chunk divided by the temperature: [N, C]. They depend on the
// nodes after, the results of the chunk before: without an order a backend could hold all
// chunks at the same time.
func (c *Chunked) logits(from int, after ...*Node) *Node {
	hidden := SchedulingBarrier(StopGradient(c.hidden), after...)
	x := dotInFloat32(hidden, 1, c.headChunk(from), 1)
	if c.scale != 1 {
		x = MulScalar(x, c.scale)
	}
	return x
}

// isTarget marks each token's target in the chunk whose logits are x: [N, C]. It depends on x,
// for the reason given at logits.
func (c *Chunked) isTarget(from int, x *Node) *Node {
	targets := AddScalar(SchedulingBarrier(c.targets, StopGradient(x)), -float64(from)) // [N]
	ids := Iota(x.Graph(), shapes.Make(c.targets.DType(), x.Shape().Dimensions...), 1)
	return Equal(ids, BroadcastToShape(InsertAxes(targets, -1), ids.Shape()))
}

// dotInFloat32 multiplies two matrices over one axis of each, with sums in float32.
func dotInFloat32(a *Node, axisA int, b *Node, axisB int) *Node {
	dot := Dot(a, b)
	if a.DType() != dtypes.Float32 {
		dot = dot.WithOutputDType(dtypes.Float32)
	}
	return dot.General([]int{axisA}, nil, []int{axisB}, nil)
}

// convertTo converts x to a type that it may have already.
func convertTo(x *Node, as dtypes.DType) *Node {
	if x.DType() == as {
		return x
	}
	return ConvertDType(x, as)
}
