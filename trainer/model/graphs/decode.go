package graphs

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers/attention"
	ml "github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/support/exceptions"

	"temper/trainer/model"
)

// BlockTokens is the number of tokens in a block of the caches.
const BlockTokens = 16

// DecodeInputs describes N tokens of up to R sequences. The keys and values of a sequence
// lie in blocks of BlockTokens, anywhere in the caches, which a table names in order. A
// sequence may bring up to C tokens at once, the next ones of its context.
//
// Attention runs as C batches over the R sequences. Each batch has one query per sequence,
// and exactly the keys that this query may see. A prompt that is prefilled in one step
// therefore takes the same operations as one that is decoded token by token, and
// leaves the same bits in the cache.
type DecodeInputs struct {
	Tokens    *Node // int32 [N]
	Positions *Node // int32 [N], the position of each token in its sequence, below MaxContext
	// Rows and Columns say where in the caches the keys and values of a token go. No two
	// tokens have the same place.
	Rows    *Node // int32 [N]
	Columns *Node // int32 [N]
	// Queries is the index, among the N tokens, of the c-th query of a sequence. It may be
	// any where Lengths is 0.
	Queries *Node // int32 [C, R]
	// Lengths is c + 1 for the c-th query of a sequence, or 0 where there is no query.
	Lengths *Node // int32 [C, R]
	// Answers is the index of each token's own query in [C, R], flattened.
	Answers *Node // int32 [N]
	// Tables are the position of each sequence's first query, and then the numbers of its
	// blocks. They are small whole numbers, which float32 holds exactly.
	Tables *Node // float32 [R, 1, W]
	// MaxContext bounds the positions.
	MaxContext int
	// Gather copies the blocks of all sequences in every layer, for backends whose
	// attention cannot read tables.
	Gather bool
}

// TableWidth is W of the tables for contexts of up to maxContext tokens.
func TableWidth(maxContext int) int {
	return 1 + max((maxContext+BlockTokens-1)/BlockTokens, BlockTokens)
}

// CacheShape is the shape of each of the 2*layers caches (keys, then values of layer 0,
// and so on) for at least a number of tokens: [X, W, K, E], with W of the tables.
// Place i is in row i/W and column i%W, and block b begins at place b*BlockTokens.
func CacheShape(c model.Config, tokens, width int) shapes.Shape {
	return shapes.Make(dtypes.Float32, (tokens+width-1)/width, width, c.NumKeyValueHeads, c.HeadDim)
}

// DecodeStep passes tokens through the network and writes their keys and values to the
// caches. It returns the hidden states [N, D] after the final norm, and the new
// caches, which the caller should donate to the next step. It reads the weights that
// ImportDecode put into the store.
func DecodeStep(scope *ml.Scope, cfg model.Config, in DecodeInputs, caches []*Node) (hidden *Node, updated []*Node) {
	if len(caches) != 2*cfg.NumHiddenLayers {
		exceptions.Panicf("%d caches for %d layers, want two for each", len(caches), cfg.NumHiddenLayers)
	}
	d := decoder{scope: scope, cfg: cfg, g: in.Tokens.Graph(), in: in}
	scope.SetTraining(d.g, true)
	d.at = Stack([]*Node{in.Rows, in.Columns}, -1) // [N, 2]
	d.cos, d.sin = d.angles(in.MaxContext)
	d.quarter = ConstTensor(d.g, quarterTurn(cfg.HeadDim))

	x := Gather(d.node(model.NameEmbed), InsertAxes(in.Tokens, -1)) // [N, D]
	for i, l := range cfg.Layers() {
		q, k, v := model.QKV(d, &l, panels{x})
		keys, values := d.writeCache(caches[2*i], k[0]), d.writeCache(caches[2*i+1], v[0])
		x = Add(x, d.Linear(l.O, panels{d.attend(q[0], keys, values)})[0])
		x = Add(x, model.FeedForward(d, &l, panels{x})[0])
		updated = append(updated, keys, values)
	}
	return d.norm(model.NameNorm, x), updated
}

// DecodeLogits maps hidden states [M, D] to scores [M, PaddedVocab]. The columns
// beyond the vocabulary hold -1e30, which is below any score.
func DecodeLogits(scope *ml.Scope, cfg model.Config, hidden *Node) *Node {
	d := decoder{scope: scope, cfg: cfg, g: hidden.Graph()}
	scope.SetTraining(d.g, true)
	pad := make([]float32, cfg.PaddedVocab())
	for i := cfg.VocabSize; i < len(pad); i++ {
		pad[i] = -1e30
	}
	return Add(d.matmul(panels{hidden}, model.NameHead), InsertAxes(ConstTensor(d.g, tensors.FromFlatDataAndDimensions(pad, len(pad))), 0))
}

// decoder holds the values that the layers of one DecodeStep share.
type decoder struct {
	scope    *ml.Scope
	cfg      model.Config
	g        *Graph
	in       DecodeInputs
	at       *Node // int32 [N, 2], place of each token in the caches
	cos, sin *Node // [N, 1, E]
	quarter  *Node // [E, E], a quarter turn; see quarterTurn
}

// node returns a weight of the decode layout.
func (d decoder) node(name string) *Node {
	v := d.scope.Store().GetVariable(decodePath(name))
	if v == nil {
		exceptions.Panicf("decode weight %s is not in the store: call ImportDecode first", name)
	}
	return v.NodeValue(d.g)
}

// panels are values whose last axis is cut into parts of the depths in which the product
// that takes them is added up. The CPU backend slices matrices element by element, so that
// it is cheaper to compute the parts one by one.
type panels []*Node

var _ model.Ops[panels] = decoder{}

// each applies an operation to all parts.
func (p panels) each(op func(i int, x *Node) *Node) panels {
	out := make(panels, len(p))
	for i, x := range p {
		out[i] = op(i, x)
	}
	return out
}

// matmul is x [N, in] times a weight [in, out], which may be stored in panels.
func (d decoder) matmul(x panels, name string) *Node {
	if len(x) > 1 {
		return addUp(x.each(func(i int, x *Node) *Node { return d.product(x, panelName(name, i)) }))
	}
	depth := x[0].Shape().Dimensions[1]
	var parts []*Node
	for from := 0; from < depth; {
		panel := panelName(name, len(parts))
		to := from + d.node(panel).Shape().Dimensions[0]
		parts = append(parts, d.product(panelOf(x[0], 1, from, to), panel))
		from = to
	}
	return addUp(parts)
}

// product is x [N, in] times a stored weight [in, out].
func (d decoder) product(x *Node, name string) *Node {
	return DotGeneral(x, []int{1}, nil, d.node(name), []int{0}, nil)
}

// biased adds columns from..to of a bias to x [N, to-from].
func (d decoder) biased(x *Node, bias string, from, to int) *Node {
	if bias == "" {
		return x
	}
	return Add(x, InsertAxes(panelOf(d.node(bias), 0, from, to), 0))
}

// norm is x / rms(x) * weight over the last axis.
func (d decoder) norm(name string, x *Node) *Node {
	ms := ReduceAndKeep(Square(x), ReduceMean, -1)
	return Mul(Mul(x, Inverse(Sqrt(AddScalar(ms, d.cfg.RMSNormEps)))), ExpandLeftToRank(d.node(name), x.Rank()))
}

// Norm is norm for x [N, D].
func (d decoder) Norm(weight string, x panels) panels { return panels{d.norm(weight, x[0])} }

// HeadNorm is norm for x [N, heads, E].
func (d decoder) HeadNorm(weight string, x panels) panels { return panels{d.norm(weight, x[0])} }

// Rotate turns x [N, heads, E]. A product with a signed permutation is exact, and costs less
// here than slices and concatenation.
func (d decoder) Rotate(x panels) panels {
	turned := DotGeneral(x[0], []int{2}, nil, d.quarter, []int{0}, nil)
	return panels{Add(Mul(x[0], d.cos), Mul(turned, d.sin))}
}

// ProjectQKV projects x [N, D] to heads [N, H|K|K, E].
func (d decoder) ProjectQKV(l *model.Layer, x panels) (q, k, v panels) {
	heads := func(l model.Linear) panels {
		return panels{Reshape(d.Linear(l, x)[0], x[0].Shape().Dimensions[0], -1, d.cfg.HeadDim)}
	}
	return heads(l.Q), heads(l.K), heads(l.V)
}

// GateUp projects x [N, D] to the panels of [N, F] that Down takes, twice.
func (d decoder) GateUp(l *model.Layer, x panels) (gate, up panels) {
	gate, up = make(panels, storedPanels(l.Down.In, l.Down.Out)), make(panels, storedPanels(l.Down.In, l.Down.Out))
	for p := range gate {
		from, to := storedPanel(p, len(gate), l.Down.In)
		gate[p] = d.biased(d.matmul(x, panelName(l.Gate.Weight, p)), l.Gate.Bias, from, to)
		up[p] = d.biased(d.matmul(x, panelName(l.Up.Weight, p)), l.Up.Bias, from, to)
	}
	return gate, up
}

// Gated is SwiGLU's product of gate and up.
func (d decoder) Gated(gate, up panels) panels {
	return gate.each(func(i int, gate *Node) *Node { return Mul(Mul(gate, Sigmoid(gate)), up[i]) })
}

// Linear projects x [N, in] to [N, out].
func (d decoder) Linear(l model.Linear, x panels) panels {
	return panels{d.biased(d.matmul(x, l.Weight), l.Bias, 0, l.Out)}
}

// writeCache stores values [N, K, E] of the tokens in a cache [X, W, K, E].
func (d decoder) writeCache(cache, values *Node) *Node { return assign(cache, d.at, values) }

// assign puts values at places of a cache. The only scatter that every backend has is
// one that adds. Subtracting the old value first is exact and makes it an assignment.
func assign(cache, at, values *Node) *Node {
	old := Gather(cache, at)
	cache = ScatterSum(cache, at, Neg(old), false, true)
	return ScatterSum(cache, at, values, false, true)
}

// CopyPlaces copies the content of all caches at places from, int32 [M, 2], to places to.
func CopyPlaces(from, to *Node, caches []*Node) (updated []*Node) {
	for _, c := range caches {
		updated = append(updated, assign(c, to, Gather(c, from)))
	}
	return updated
}

// attend answers the queries [N, H, E] from the caches: [N, H*E].
func (d decoder) attend(q, k, v *Node) *Node {
	chunk, rows := d.in.Lengths.Shape().Dimensions[0], d.in.Lengths.Shape().Dimensions[1]
	h, e := d.cfg.NumAttentionHeads, d.cfg.HeadDim
	read := d.attendTables
	if d.in.Gather {
		k, v = d.gatherBlocks(k), d.gatherBlocks(v)
		read = d.attendRows
	}
	answers := make([]*Node, chunk)
	for c := range chunk {
		at := Reshape(SliceAxis(d.in.Queries, 0, AxisElem(c)), rows, 1)
		query := InsertAxes(Gather(q, at), 1) // [R, 1, H, E]
		lengths := Reshape(SliceAxis(d.in.Lengths, 0, AxisElem(c)), rows)
		answers[c] = Reshape(read(query, k, v, lengths), rows, h*e)
	}
	all := answers[0]
	if chunk > 1 {
		all = Concatenate(answers, 0) // [C*R, H*E]
	}
	return Gather(all, InsertAxes(d.in.Answers, -1))
}

// attendTables answers queries [R, 1, H, E] from caches [X, W, K, E]. The tables travel
// as the bias of attention; trainer/cpu/kernels recognizes them.
func (d decoder) attendTables(q, k, v, lengths *Node) *Node {
	one := Ones(d.g, lengths.Shape())
	a, _ := BackendFusedScaledDotProductAttention(q, k, v, attention.LayoutBSHD, &compute.ScaledDotProductAttentionConfig{
		QuerySeqLen: InternalBackendOutputs(one)[0], KeyValueSeqLen: InternalBackendOutputs(lengths)[0],
		Bias: InternalBackendOutputs(d.in.Tables)[0],
	})
	return a
}

// attendRows answers queries [R, 1, H, E] from keys and values [R, S, K, E].
func (d decoder) attendRows(q, k, v, lengths *Node) *Node {
	one := Ones(d.g, lengths.Shape())
	first := ConvertDType(Reshape(SliceAxis(d.in.Tables, 2, AxisElem(0)), lengths.Shape().Dimensions...), dtypes.Int32)
	seen := Add(lengths, Mul(first, Min(lengths, one))) // 0 stays 0
	a, _ := attention.Core(q, k, v, attention.LayoutBSHD, attention.CoreOptions{QuerySeqLen: one, KVSeqLen: seen})
	return a
}

// gatherBlocks collects the blocks of each sequence from a cache: [R, S, K, E].
func (d decoder) gatherBlocks(cache *Node) *Node {
	rows, blocks := d.in.Tables.Shape().Dimensions[0], d.in.Tables.Shape().Dimensions[2]-1
	numbers := ConvertDType(SliceAxis(d.in.Tables, 2, AxisRangeToEnd(1)), dtypes.Int32) // [R, 1, W-1]
	first := MulScalar(Reshape(numbers, rows, blocks, 1), BlockTokens)
	places := Add(BroadcastToDims(first, rows, blocks, BlockTokens), Iota(d.g, shapes.Make(dtypes.Int32, rows, blocks, BlockTokens), 2))
	flat := Reshape(cache, -1, d.cfg.NumKeyValueHeads, d.cfg.HeadDim)
	return Gather(flat, Reshape(places, rows, blocks*BlockTokens, 1))
}

// angles looks up the cosines and sines of the tokens' positions: [N, 1, E] each.
func (d decoder) angles(length int) (cos, sin *Node) {
	cos, sin = newRotation(d.g, d.cfg, d.in.Positions, length).angles(1) // [N, 1, E/2]
	return Concatenate([]*Node{cos, cos}, -1), Concatenate([]*Node{sin, sin}, -1)
}
