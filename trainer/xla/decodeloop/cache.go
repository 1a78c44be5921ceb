package decodeloop

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"temper/trainer/model"
	"temper/trainer/model/graphs"
)

// BlockTokens is the number of tokens in a block of the cache.
const BlockTokens = graphs.BlockTokens

// The cache is [P, BlockTokens*Y]: blocks, the last of which takes the tokens that are never
// read. All layers of a token lie side by side, so that a block is one piece of memory.

// numbers is Y: keys and values of all layers of one token.
func numbers(cfg model.Config) int {
	return cfg.NumHiddenLayers * 2 * cfg.NumKeyValueHeads * cfg.HeadDim
}

// blocksOf is the number of blocks that n tokens need.
func blocksOf(n int) int { return (n + BlockTokens - 1) / BlockTokens }

// spread is the number of blocks that n tokens touch at most, wherever they begin.
func spread(n int) int { return blocksOf(n + BlockTokens - 1) }

// contexts collects the blocks of tables, int32 [B, L/BlockTokens], from the cache, and
// leaves room for whole blocks of more tokens: of each layer keys [B, K, E, S] and values [B,
// K, S, E]. In that room stands the content of the last block: a copy of blocks costs less
// than to pad each layer.
func contexts(cfg model.Config, cache, tables *node, room int) []*node {
	rows, layers, kv, e := tables.Shape().Dimensions[0], cfg.NumHiddenLayers, cfg.NumKeyValueHeads, cfg.HeadDim
	if room > 0 {
		unread := graph.Const(cache.Graph(), int32(cache.Shape().Dimensions[0]-1)) //nolint:gosec // a block
		tables = graph.Concatenate([]*node{tables, graph.BroadcastToDims(unread, rows, room)}, 1)
	}
	tokens := tables.Shape().Dimensions[1] * BlockTokens
	all := graph.Reshape(graph.Gather(cache, graph.InsertAxes(tables, -1)), rows, tokens, 2*layers, kv, e)
	out := make([]*node, 2*layers)
	for i := range out {
		axes := []int{0, 2, 1, 3} // [B, K, S, E]
		if i%2 == 0 {
			axes = []int{0, 2, 3, 1} // [B, K, E, S]
		}
		out[i] = graph.TransposeAllAxes(graph.Reshape(graph.SliceAxis(all, 2, graph.AxisElem(i)), rows, tokens, kv, e), axes...)
	}
	return out
}

// joined is the reverse of contexts for n tokens from an index on: [B, n, Y].
func joined(parts []*node, from, n int) *node {
	rest := make([]*node, len(parts))
	for i, p := range parts {
		if i%2 == 0 {
			rest[i] = graph.TransposeAllAxes(graph.SliceAxis(p, 3, graph.AxisRange(from, from+n)), 0, 3, 1, 2)
		} else {
			rest[i] = graph.TransposeAllAxes(graph.SliceAxis(p, 2, graph.AxisRange(from, from+n)), 0, 2, 1, 3)
		}
		rest[i] = graph.InsertAxes(rest[i], 2) // [B, n, 1, K, E]
	}
	dims := rest[0].Shape().Dimensions
	return graph.Reshape(graph.Concatenate(rest, 2), dims[0], n, -1)
}

// writeBack puts the first counts, int32 [B], of tokens [B, A, Y] into the cache. The first of
// them has a position, int32 [B], and targets, int32 [B, spread(A)], are the blocks from that
// position on. It writes whole blocks: it copies their tokens before the position.
func writeBack(cache, tokens, positions, counts, targets *node) *node {
	g, rows, ahead, y := cache.Graph(), tokens.Shape().Dimensions[0], tokens.Shape().Dimensions[1], tokens.Shape().Dimensions[2]
	blocks := targets.Shape().Dimensions[1]
	wide := blocks * BlockTokens
	old := graph.Reshape(graph.Gather(cache, graph.InsertAxes(targets, -1)), rows, wide, y)
	grid := shapes.Make(dtypes.Int32, rows, wide)
	offset := graph.Mod(positions, numbersLike(positions, int32(BlockTokens)))
	at := graph.Sub(graph.Iota(g, grid, 1), graph.BroadcastToDims(graph.Reshape(offset, rows, 1), rows, wide)) // index among tokens
	fresh := graph.LogicalAnd(graph.GreaterOrEqual(at, numbersLike(at, int32(0))), graph.LessThan(at, graph.BroadcastToDims(graph.Reshape(counts, rows, 1), rows, wide)))
	inside := graph.Min(graph.Max(at, numbersLike(at, int32(0))), numbersLike(at, int32(ahead-1)))
	chosen := graph.Gather(tokens, graph.Stack([]*node{graph.Iota(g, grid, 0), inside}, -1)) // [B, wide, Y]
	merged := graph.Where(graph.BroadcastToDims(graph.InsertAxes(fresh, -1), rows, wide, y), chosen, old)
	return putBlocks(cache, graph.Reshape(merged, rows*blocks, BlockTokens*y), graph.Reshape(targets, rows*blocks))
}

// putBlocks writes values [M, BlockTokens*Y] to blocks, int32 [M], one after another: XLA has
// no scatter that GoMLX can express and that assigns.
func putBlocks(cache, values, blocks *node) *node {
	g, m, width := cache.Graph(), values.Shape().Dimensions[0], values.Shape().Dimensions[1]
	scalar := shapes.Make(dtypes.Int32)
	parameters := func(g *graph.Graph) []*node {
		return []*node{
			graph.Parameter(g, "put_index", scalar), graph.Parameter(g, "put_cache", cache.Shape()),
			graph.Parameter(g, "put_values", values.Shape()), graph.Parameter(g, "put_blocks", blocks.Shape()),
		}
	}
	cond := graph.NewClosure(g, func(g *graph.Graph) []*node {
		return []*node{graph.LessThan(parameters(g)[0], graph.Const(g, int32(m)))} //nolint:gosec // a few hundred
	})
	body := graph.NewClosure(g, func(g *graph.Graph) []*node {
		of := parameters(g)
		i, cache, values, blocks, zero := of[0], of[1], of[2], of[3], graph.Const(g, int32(0))
		to := graph.Reshape(graph.DynamicSlice(blocks, []*node{i}, []int{1}))
		row := graph.DynamicSlice(values, []*node{i, zero}, []int{1, width})
		cache = graph.DynamicUpdateSlice(cache, row, []*node{to, zero})
		return []*node{graph.Add(i, graph.Const(g, int32(1))), cache, values, blocks}
	})
	return graph.While(cond, body, graph.Const(g, int32(0)), cache, values, blocks)[1]
}
