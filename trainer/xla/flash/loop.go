package flash

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// pair is a block of queries and a block of keys, within the loop.
type pair struct {
	i, j  *graph.Node // scalars, int32
	first *graph.Node // bool scalar: the first pair of this block of queries
}

// loop visits the pairs: all blocks of keys for one block of queries, then for the next.
// step receives the changing and the constant values, and returns the changed ones. The result
// is their values after the last pair.
//
// GoMLX has no nested loops, so one loop counts both. Its length is a constant if all pairs
// below the diagonal are computed, so that a GPU does not wait for the condition. Operations
// within the loop use constants that were made within it: the caches of numbers in GoMLX, and
// of reductions in its backend, do not distinguish functions.
func (a *Attention) loop(changes, stays []*graph.Node, step func(p pair, changes, stays []*graph.Node) []*graph.Node) []*graph.Node {
	g := changes[0].Graph()
	pairs := int32(a.blocks * (a.blocks + 1) / 2) //nolint:gosec // far below
	zero := graph.Const(g, int32(0))
	counters := []*graph.Node{zero, graph.Const(g, int32(0)), graph.Const(g, int32(0))} // pairs done, i, j
	starts := a.first
	if starts == nil {
		starts = graph.Const(g, make([]int32, 1))
	}
	state := append(append(append(counters, starts), changes...), stays...)
	parameters := func(g *graph.Graph) []*graph.Node {
		in := make([]*graph.Node, len(state))
		for i, x := range state {
			in[i] = graph.Parameter(g, fmt.Sprintf("state%d", i), x.Shape())
		}
		return in
	}
	cond := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
		in := parameters(g)
		if a.first == nil {
			return []*graph.Node{graph.LessThan(in[0], graph.Const(g, pairs))}
		}
		return []*graph.Node{graph.LessThan(in[1], graph.Const(g, int32(a.blocks)))} //nolint:gosec // far below
	})
	forget := func() {
		if err := forgetReductions(g); err != nil {
			exceptions.Panicf("loop over blocks: %v", err)
		}
	}
	forget()
	body := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
		in := parameters(g)
		done, i, j, starts, rest := in[0], in[1], in[2], in[3], in[4:]
		start := graph.Reshape(graph.DynamicSlice(starts, []*graph.Node{a.startOf(i)}, []int{1}))
		out := step(pair{i, j, graph.Equal(j, start)}, rest[:len(changes)], rest[len(changes):])
		i, j = a.next(i, j, starts)
		out = append([]*graph.Node{graph.Add(done, graph.Const(g, int32(1))), i, j, starts}, out...)
		return append(out, rest[len(changes):]...)
	})
	forget()
	out := graph.While(cond, body, state...)
	return out[4 : 4+len(changes)]
}

// startOf returns the first pair of a block of queries.
func (a *Attention) startOf(i *graph.Node) *graph.Node {
	if a.first == nil {
		return graph.Const(i.Graph(), int32(0))
	}
	return graph.Min(i, graph.Const(i.Graph(), int32(a.blocks-1))) //nolint:gosec // far below
}

// next returns the pair after i, j: the next block of keys up to the diagonal, then the first
// pair of the next block of queries.
func (a *Attention) next(i, j, starts *graph.Node) (nextI, nextJ *graph.Node) {
	g, last := i.Graph(), graph.Equal(i, j)
	one := graph.Const(g, int32(1))
	nextI = graph.Where(last, graph.Add(i, one), i)
	start := graph.Reshape(graph.DynamicSlice(starts, []*graph.Node{a.startOf(nextI)}, []int{1}))
	return nextI, graph.Where(last, start, graph.Add(j, one))
}

// at returns block i of x [n, ...]: [...].
func at(x, i *graph.Node) *graph.Node {
	dims := x.Shape().Clone().Dimensions
	dims[0] = 1
	return graph.Reshape(graph.DynamicSlice(x, places(i, len(dims)), dims), dims[1:]...)
}

// put returns x [n, ...] with block i replaced by [...].
func put(x, block, i *graph.Node) *graph.Node {
	dims := append([]int{1}, block.Shape().Dimensions...)
	return graph.DynamicUpdateSlice(x, graph.Reshape(block, dims...), places(i, len(dims)))
}

// places returns the start of a block along each axis.
func places(i *graph.Node, rank int) []*graph.Node {
	out := []*graph.Node{i}
	for range rank - 1 {
		out = append(out, graph.Const(i.Graph(), int32(0)))
	}
	return out
}

// zeros returns zeros to begin a loop with. They depend on the node after: otherwise a compiler
// makes the zeros of all layers at the start.
func zeros(after *graph.Node, dtype dtypes.DType, dims ...int) *graph.Node {
	zero := graph.SchedulingBarrier(graph.Const(after.Graph(), float32(0)), graph.StopGradient(after))
	return graph.BroadcastToDims(convert(zero, dtype), dims...)
}
