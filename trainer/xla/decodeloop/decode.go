package decodeloop

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"temper/trainer/model"
)

// Columns of the host's input for each slot of a decoding call. The numbers of blocks
// follow: of the context, and then of the places of the new tokens.
const (
	colToken    = iota // the last token of the context, which the cache does not hold
	colPosition        // of that token
	colSeedLow
	colSeedHigh
	colScale // bits of a float32
	colGreedy
	colLimit // most tokens to make; 0 for an empty slot
	colStop  // the first of Stops tokens after which the slot stops, or -1
)

// Stops is how many tokens a slot stops at on the device.
const Stops = 4

const decodeColumns = colStop + Stops

// control are the columns of the control array of a decoding call as nodes.
type control struct {
	token, position, scale, limit *node // [N]
	seed                          *node // uint64 [N]
	greedy                        *node // bool [N]
	stops                         *node // int32 [N, Stops]
	context, targets              *node // int32 [N, blocks]
}

// readControl takes the control array, int32 [N, columns], apart, for contexts of a number of
// blocks.
func readControl(ctl *node, blocks int) control {
	column := func(i int) *node { return graph.Squeeze(graph.SliceAxis(ctl, 1, graph.AxisElem(i)), 1) }
	u64 := func(i int) *node { return graph.ConvertDType(graph.Bitcast(column(i), dtypes.Uint32), dtypes.Uint64) }
	high := u64(colSeedHigh)
	return control{
		token: column(colToken), position: column(colPosition), limit: column(colLimit),
		scale:   graph.Bitcast(column(colScale), dtypes.Float32),
		seed:    graph.BitwiseOr(u64(colSeedLow), graph.BitwiseShiftLeft(high, numbersLike(high, uint64(32)))),
		greedy:  graph.GreaterThan(column(colGreedy), numbersLike(column(colGreedy), int32(0))),
		stops:   graph.SliceAxis(ctl, 1, graph.AxisRange(colStop, colStop+Stops)),
		context: graph.SliceAxis(ctl, 1, graph.AxisRange(decodeColumns, decodeColumns+blocks)),
		targets: graph.SliceAxis(ctl, 1, graph.AxisRangeToEnd(decodeColumns+blocks)),
	}
}

// inside are the nodes that a step reads.
func (c control) inside() []*node {
	return []*node{c.position, c.scale, c.limit, c.seed, c.greedy, c.stops}
}

// withInside replaces them by the first of others, and returns the rest.
func (c control) withInside(of []*node) (control, []*node) {
	c.position, c.scale, c.limit, c.seed, c.greedy, c.stops = of[0], of[1], of[2], of[3], of[4], of[5]
	return c, of[6:]
}

// decoder builds the program that makes up to ahead tokens for each of a number of slots
// with contexts of at most length tokens.
type decoder struct {
	network
	slots, length, ahead int
}

// state holds the values from one token to the next: the step, whether a slot continues, the
// last tokens, int32 [N], which slots are done, bool [N], the samples, int32 and float32 [A,
// N], and the keys and values.
type state struct {
	step, going, token, done, tokens, logprobs *node
	caches                                     []*node
}

// stateNodes is the number of nodes of a state before the caches.
const stateNodes = 6

func (s state) nodes() []*node {
	return append([]*node{s.step, s.going, s.token, s.done, s.tokens, s.logprobs}, s.caches...)
}

func newState(of []*node) state {
	return state{of[0], of[1], of[2], of[3], of[4], of[5], of[stateNodes:]}
}

// build returns the samples, int32 [2, A, N] (tokens, bits of log-probabilities), and the
// new cache. With logits, for one token ahead, the logits [N, V] come between them.
func (d decoder) build(cache, ctl *node, logits bool) []*node {
	g := ctl.Graph()
	c := readControl(ctl, d.length/BlockTokens)
	begin := state{
		step: graph.Const(g, int32(0)), going: graph.Const(g, true), token: c.token,
		done:     graph.LessOrEqual(c.limit, numbersLike(c.limit, int32(0))),
		tokens:   graph.BroadcastToDims(graph.Const(g, int32(0)), d.ahead, d.slots),
		logprobs: graph.BroadcastToDims(graph.Const(g, float32(0)), d.ahead, d.slots),
		caches:   contexts(d.cfg, cache, c.context, blocksOf(d.ahead)),
	}
	var end state
	var scores []*node
	if logits {
		var last *node
		end, last = d.step(c, begin)
		scores = []*node{last}
	} else {
		end = d.loop(c, begin)
	}
	cache = writeBack(cache, joined(end.caches, d.length, d.ahead), c.position, c.limit, c.targets)
	sampled := graph.Stack([]*node{end.tokens, graph.Bitcast(end.logprobs, dtypes.Int32)}, 0)
	return append(append([]*node{sampled}, scores...), cache)
}

// loop makes tokens until there are enough, or every slot is done. Values that the closures
// of the loop read from outside pass through them unchanged: XLA sees that they stay, and
// copies nothing. go-xla keeps one function for each kind of reduction of a program, which
// belongs to the closure or to the code around it: only the body uses reductions.
func (d decoder) loop(c control, begin state) state {
	g := begin.step.Graph()
	names := make([]string, 0, len(d.weights))
	for name := range d.weights {
		names = append(names, name)
	}
	slices.Sort(names)
	all := begin.nodes()
	n := len(all)
	all = append(all, c.inside()...)
	for _, name := range names {
		all = append(all, d.weights[name])
	}
	parameters := func(g *graph.Graph) []*node {
		of := make([]*node, len(all))
		for i, n := range all {
			of[i] = graph.Parameter(g, fmt.Sprintf("state%d", i), n.Shape())
		}
		return of
	}
	cond := graph.NewClosure(g, func(g *graph.Graph) []*node {
		s := newState(parameters(g)[:n])
		return []*node{graph.LogicalAnd(graph.LessThan(s.step, graph.Const(g, int32(d.ahead))), s.going)} //nolint:gosec // a few tokens
	})
	body := graph.NewClosure(g, func(g *graph.Graph) []*node {
		of := parameters(g)
		c, rest := c.withInside(of[n:])
		inner := d
		inner.weights = map[string]*node{}
		for i, name := range names {
			inner.weights[name] = rest[i]
		}
		next, _ := inner.step(c, newState(of[:n]))
		return append(next.nodes(), of[n:]...)
	})
	return newState(graph.While(cond, body, all...)[:n])
}

// step makes one token for each slot: it feeds the last one and samples the next.
func (d decoder) step(c control, s state) (state, *node) {
	g := s.step.Graph()
	heads, kv, e := d.cfg.NumAttentionHeads, d.cfg.NumKeyValueHeads, d.cfg.HeadDim
	zero := graph.Const(g, int32(0))
	every := func(n *node) *node { return graph.BroadcastToDims(n, d.slots) }
	position := graph.Add(c.position, every(s.step))
	net := d.at(position)
	seen := d.seen(c, s.step)
	at := graph.Add(s.step, graph.Const(g, int32(d.length))) //nolint:gosec // a context

	x := d.embed(s.token)
	caches := make([]*node, len(s.caches))
	for i, l := range d.cfg.Layers() {
		q, k, v := model.QKV(net, &l, x)
		caches[2*i] = graph.DynamicUpdateSlice(s.caches[2*i], graph.Reshape(k, d.slots, kv, e, 1), []*node{zero, zero, zero, at})
		caches[2*i+1] = graph.DynamicUpdateSlice(s.caches[2*i+1], graph.Reshape(v, d.slots, kv, 1, e), []*node{zero, zero, at, zero})
		answers := attention(graph.Reshape(q, d.slots, kv, d.groups(), e), caches[2*i], caches[2*i+1], seen)
		x = d.finish(&l, x, graph.Reshape(answers, d.slots, heads*e))
	}
	logits := d.logits(x)
	one := graph.Const(g, int32(1))
	next := graph.Add(position, every(one)) // the position of the sampled token
	token, logprob := sample(logits, sampling{uniform: uniform(c.seed, next), scale: c.scale, greedy: c.greedy})

	made := graph.Add(s.step, one)
	stopped := graph.LogicalAny(graph.Equal(c.stops, graph.BroadcastToDims(graph.Reshape(token, d.slots, 1), d.slots, Stops)), 1)
	done := graph.LogicalOr(s.done, graph.LogicalOr(stopped, graph.GreaterOrEqual(every(made), c.limit)))
	return state{
		step: made, going: graph.LogicalAny(graph.LogicalNot(done)), token: token, done: done, caches: caches,
		tokens:   graph.DynamicUpdateSlice(s.tokens, graph.Reshape(token, 1, d.slots), []*node{s.step, zero}),
		logprobs: graph.DynamicUpdateSlice(s.logprobs, graph.Reshape(logprob, 1, d.slots), []*node{s.step, zero}),
	}, logits
}

// seen marks the keys [S] that the queries of a step see: bool [N, 1, 1, S].
func (d decoder) seen(c control, step *node) *node {
	all := shapes.Make(dtypes.Int32, d.slots, 1, 1, d.length+blocksOf(d.ahead)*BlockTokens)
	g := step.Graph()
	at := graph.Iota(g, all, 3)
	every := func(n *node) *node { return graph.BroadcastToDims(n, all.Dimensions...) }
	length := every(graph.Const(g, int32(d.length))) //nolint:gosec // a context
	old := graph.LessThan(at, every(graph.Reshape(c.position, d.slots, 1, 1, 1)))
	fresh := graph.LogicalAnd(graph.GreaterOrEqual(at, length), graph.LessOrEqual(graph.Sub(at, length), every(step)))
	return graph.LogicalOr(old, fresh)
}
