package flash

import (
	"cmp"
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// MaxBlock and MaxBlockGPU bound the tokens of a block, on a CPU and on a GPU. The scores of a
// pair are this number squared for each row and head. A GPU starts some 20 kernels a pair,
// which must be long in comparison with their start.
const (
	MaxBlock    = 512
	MaxBlockGPU = 2048
)

// Sizes of an attention.
type Sizes struct {
	// Batch rows of Tokens each.
	Batch, Tokens int
	// Heads of queries, a multiple of the KeyHeads of keys and values, of HeadDim numbers.
	Heads, KeyHeads, HeadDim int
	// Block is the most tokens of a block; 0 is MaxBlock.
	Block int
}

// Attention is causal grouped-query attention over rows of one length.
type Attention struct {
	batch, seq, kv, groups, dim int
	blocks, block               int
	segments                    *graph.Node // int32 [n, B, b]; nil where a row has one segment
	first                       *graph.Node // int32 [n], the first block of keys of each block of queries; nil is 0
}

// Block returns the number of tokens of a block in rows of a length, at most most. The blocks
// of a row have nearly equal sizes, to keep padding low.
func Block(tokens, most int) int {
	n := (tokens + most - 1) / most
	return (tokens + n - 1) / n
}

// New prepares attention. Segments [B, T] separate the sequences of a row, whose tokens are
// consecutive; nil means one a row.
func New(s Sizes, segments *graph.Node) *Attention {
	most := cmp.Or(s.Block, MaxBlock)
	if s.Heads%s.KeyHeads != 0 || most < 1 {
		exceptions.Panicf("%d heads of queries for %d of keys, blocks of %d: want a multiple, and blocks", s.Heads, s.KeyHeads, most)
	}
	block := Block(s.Tokens, most)
	a := &Attention{
		batch: s.Batch, seq: s.Tokens, kv: s.KeyHeads, groups: s.Heads / s.KeyHeads, dim: s.HeadDim,
		blocks: (s.Tokens + block - 1) / block, block: block,
	}
	if segments == nil {
		return a
	}
	segments.AssertDims(a.batch, a.seq)
	if over := a.blocks*a.block - a.seq; over > 0 { // padding: no query comes after these keys
		last := graph.SliceAxis(segments, 1, graph.AxisRange(a.seq-1, a.seq))
		segments = graph.Concatenate([]*graph.Node{segments, graph.BroadcastToDims(last, a.batch, over)}, 1)
	}
	a.first = a.firstBlocks(segments)
	a.segments = graph.TransposeAllAxes(graph.Reshape(segments, a.batch, a.blocks, a.block), 1, 0, 2)
	return a
}

// firstBlocks returns, for each block of queries, the block of keys in which the segment of its
// first token begins in some row: int32 [n].
func (a *Attention) firstBlocks(segments *graph.Node) *graph.Node {
	g := segments.Graph()
	heads := graph.Squeeze(graph.SliceAxis(graph.Reshape(segments, a.batch, a.blocks, a.block), 2, graph.AxisRange(0, 1)), -1) // [B, n]
	same := graph.Equal(graph.InsertAxes(heads, 2), graph.InsertAxes(segments, 1))                                             // [B, n, T]
	at := graph.Iota(g, shapes.Make(dtypes.Int32, a.batch, a.blocks, a.blocks*a.block), 2)
	far := graph.BroadcastToShape(graph.Const(g, int32(math.MaxInt32)), at.Shape())
	start := graph.ReduceMin(graph.Where(same, at, far), 0, 2) // [n]
	return graph.Div(start, graph.Const(g, int32(a.block)))    //nolint:gosec // at most the length of a row
}

// byBlock arranges x [N, H or K, E] by block and key/value head: [n, B, K, G*b or b, E].
func (a *Attention) byBlock(x *graph.Node) *graph.Node {
	x = graph.Reshape(x, a.batch, a.seq, a.kv, -1, a.dim)
	if over := a.blocks*a.block - a.seq; over > 0 {
		dims := x.Shape().Clone().Dimensions
		dims[1] = over
		x = graph.Concatenate([]*graph.Node{x, graph.Zeros(x.Graph(), shapes.Make(x.DType(), dims...))}, 1)
	}
	x = graph.Reshape(x, a.batch, a.blocks, a.block, a.kv, -1, a.dim)
	x = graph.TransposeAllAxes(x, 1, 0, 3, 4, 2, 5) // [n, B, K, G or 1, b, E]
	return graph.Reshape(x, a.blocks, a.batch, a.kv, -1, a.dim)
}

// byToken is the inverse of byBlock.
func (a *Attention) byToken(x *graph.Node) *graph.Node {
	x = graph.Reshape(x, a.blocks, a.batch, a.kv, -1, a.block, a.dim)
	x = graph.TransposeAllAxes(x, 1, 0, 4, 2, 3, 5) // [B, n, b, K, G or 1, E]
	x = graph.Reshape(x, a.batch, a.blocks*a.block, -1, a.dim)
	if a.blocks*a.block > a.seq {
		x = graph.SliceAxis(x, 1, graph.AxisRange(0, a.seq))
	}
	return graph.Reshape(x, a.batch*a.seq, -1, a.dim)
}

// scaled returns the queries as factors of scores, in the type of the values.
func (a *Attention) scaled(q *graph.Node, as dtypes.DType) *graph.Node {
	return convert(graph.MulScalar(q, a.scale()), as)
}

// scale returns the factor of the scores.
func (a *Attention) scale() float64 { return 1 / math.Sqrt(float64(a.dim)) }

// convert converts x to a type that it may have already.
func convert(x *graph.Node, as dtypes.DType) *graph.Node {
	if x.DType() == as {
		return x
	}
	return graph.ConvertDType(x, as)
}
