package decodeloop

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"temper/trainer/model"
)

// Columns of the host's input for each row of a prefill. The tokens follow, and then the
// numbers of blocks as for decoding.
const (
	colFirst = iota // the position of the first token
	colCount        // of tokens; 0 for an empty row
	prefillColumns
)

// prefiller builds the program that computes keys and values of rows of up to chunk
// tokens, after contexts of at most length tokens.
type prefiller struct {
	network
	rows, chunk, length int
}

// build returns the new cache.
func (p prefiller) build(cache, ctl *node) *node {
	g := ctl.Graph()
	column := func(i int) *node { return graph.Squeeze(graph.SliceAxis(ctl, 1, graph.AxisElem(i)), 1) }
	columns := func(from, to int) *node { return graph.SliceAxis(ctl, 1, graph.AxisRange(from, to)) }
	first, count := column(colFirst), column(colCount)
	blocks := prefillColumns + p.chunk
	context, targets := columns(blocks, blocks+p.length/BlockTokens), graph.SliceAxis(ctl, 1, graph.AxisRangeToEnd(blocks+p.length/BlockTokens))

	grid := shapes.Make(dtypes.Int32, p.rows, p.chunk)
	positions := graph.Add(graph.Iota(g, grid, 1), graph.BroadcastToDims(graph.Reshape(first, p.rows, 1), p.rows, p.chunk))
	at := p.at(graph.Reshape(positions, -1))
	var old []*node
	if p.length > 0 {
		old = contexts(p.cfg, cache, context, 0)
	}
	seen := p.seen(g, first)
	x := p.embed(graph.Reshape(columns(prefillColumns, blocks), -1)) // [B*T, D]
	fresh := make([]*node, 2*p.cfg.NumHiddenLayers)
	for i, l := range p.cfg.Layers() {
		q, k, v := model.QKV(at, &l, x)
		fresh[2*i], fresh[2*i+1] = graph.TransposeAllAxes(p.heads(k), 0, 1, 3, 2), p.heads(v)
		if last := i == p.cfg.NumHiddenLayers-1; last {
			break // nothing is sampled after these tokens
		}
		keys, values := fresh[2*i], fresh[2*i+1]
		if old != nil {
			keys, values = graph.Concatenate([]*node{old[2*i], keys}, 3), graph.Concatenate([]*node{old[2*i+1], values}, 2)
		}
		x = p.finish(&l, x, p.attend(q, keys, values, seen))
	}
	return writeBack(cache, joined(fresh, 0, p.chunk), first, count, targets)
}

// heads puts the heads of x [B*T, heads, E] before the tokens: [B, heads, T, E].
func (p prefiller) heads(x *node) *node {
	dims := x.Shape().Dimensions
	return graph.TransposeAllAxes(graph.Reshape(x, p.rows, p.chunk, dims[1], dims[2]), 0, 2, 1, 3)
}

// attend answers queries [B*T, K*G, E] from the context and the chunk itself: [B*T, K*G*E].
func (p prefiller) attend(q, keys, values, seen *node) *node {
	kv, e := p.cfg.NumKeyValueHeads, p.cfg.HeadDim
	grouped := graph.Reshape(p.heads(q), p.rows, kv, p.groups()*p.chunk, e)
	a := attention(grouped, keys, values, seen)
	a = graph.TransposeAllAxes(graph.Reshape(a, p.rows, kv*p.groups(), p.chunk, e), 0, 2, 1, 3) // [B, T, H, E]
	return graph.Reshape(a, p.rows*p.chunk, -1)
}

// seen marks the keys [L+T] that each query sees: bool [B, 1, G*T, L+T]. A chunk sees its
// context and its tokens that are not later.
func (p prefiller) seen(g *graph.Graph, first *node) *node {
	all := shapes.Make(dtypes.Int32, p.rows, 1, p.groups()*p.chunk, p.length+p.chunk)
	every := func(n *node) *node { return graph.BroadcastToDims(n, all.Dimensions...) }
	number := func(v int) *node { return every(graph.Const(g, int32(v))) } //nolint:gosec // a context
	at, query := graph.Iota(g, all, 3), graph.Mod(graph.Iota(g, all, 2), number(p.chunk))
	old := graph.LogicalAnd(graph.LessThan(at, every(graph.Reshape(first, p.rows, 1, 1, 1))), graph.LessThan(at, number(p.length)))
	fresh := graph.LogicalAnd(graph.GreaterOrEqual(at, number(p.length)), graph.LessOrEqual(graph.Sub(at, number(p.length)), query))
	return graph.LogicalOr(old, fresh)
}

// copyBlocks returns the cache in which blocks are copies of others: ctl is int32 [M, 2], from and
// to.
func copyBlocks(cache, ctl *node) *node {
	column := func(i int) *node { return graph.SliceAxis(ctl, 1, graph.AxisElem(i)) }
	return putBlocks(cache, graph.Gather(cache, column(0)), graph.Squeeze(column(1), 1))
}
