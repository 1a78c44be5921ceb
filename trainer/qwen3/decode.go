package qwen3

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/support/exceptions"
)

// DecodeInputs describes N tokens of up to R sequences, each of which has a row of the
// caches. A sequence may bring up to C tokens at once, the next ones of its context.
//
// Attention runs as C batches over the R cache rows. Each batch has one query per row,
// and exactly the keys that this query may see. A prompt that is prefilled in one step
// therefore takes the same operations as one that is decoded token by token, and
// leaves the same bits in the cache.
type DecodeInputs struct {
	Tokens    *Node // int32 [N]
	Rows      *Node // int32 [N], the cache row of each token, below R
	Positions *Node // int32 [N], its position, below S; unique per row
	// Queries is the index, among the N tokens, of the c-th query of a row. It may be any
	// where Lengths is 0.
	Queries *Node // int32 [C, R]
	// Lengths is the number of keys that the query sees: its position + 1, or 0 where
	// there is no query.
	Lengths *Node // int32 [C, R]
	// Answers is the index of each token's own query in [C, R], flattened.
	Answers *Node // int32 [N]
}

// CacheShape is the shape of each of the 2*layers caches (keys, then values of
// layer 0, and so on) for R sequences of at most S tokens: [R, S, K, E].
func (c Config) CacheShape(rows, length int) shapes.Shape {
	return shapes.Make(dtypes.Float32, rows, length, c.NumKeyValueHeads, c.HeadDim)
}

// DecodeStep passes tokens through the network and writes their keys and values to the
// caches. It returns the hidden states [N, D] after the final norm, and the new
// caches, which the caller should donate to the next step. It reads the weights that
// ImportDecode put into the store.
func DecodeStep(scope *model.Scope, cfg Config, in DecodeInputs, caches []*Node) (hidden *Node, updated []*Node) {
	if len(caches) != 2*cfg.NumHiddenLayers {
		exceptions.Panicf("%d caches for %d layers, want two for each", len(caches), cfg.NumHiddenLayers)
	}
	d := decoder{scope: scope, cfg: cfg, g: in.Tokens.Graph(), in: in}
	scope.SetTraining(d.g, true)
	d.at = Stack([]*Node{in.Rows, in.Positions}, -1) // [N, 2]
	d.cos, d.sin = d.angles(caches[0].Shape().Dimensions[1])
	d.quarter = ConstTensor(d.g, rotateHalf(cfg.HeadDim))

	x := Gather(d.node(nameEmbed), InsertAxes(in.Tokens, -1)) // [N, D]
	for i := range cfg.NumHiddenLayers {
		q, k, v := d.qkv(i, x)
		k, v = d.writeCache(caches[2*i], k), d.writeCache(caches[2*i+1], v)
		x = Add(x, d.matmul(d.attend(q, k, v), layerName(i, nameO)))
		x = Add(x, d.mlp(i, x))
		updated = append(updated, k, v)
	}
	return d.norm(x, nameNorm), updated
}

// DecodeLogits maps hidden states [M, D] to scores [M, PaddedVocab]. The columns
// beyond the vocabulary hold -1e30, which is below any score.
func DecodeLogits(scope *model.Scope, cfg Config, hidden *Node) *Node {
	d := decoder{scope: scope, cfg: cfg, g: hidden.Graph()}
	scope.SetTraining(d.g, true)
	pad := make([]float32, cfg.PaddedVocab())
	for i := cfg.VocabSize; i < len(pad); i++ {
		pad[i] = -1e30
	}
	return Add(d.matmul(hidden, nameHead), InsertAxes(ConstTensor(d.g, tensors.FromFlatDataAndDimensions(pad, len(pad))), 0))
}

// decoder holds what the layers of one DecodeStep share.
type decoder struct {
	scope    *model.Scope
	cfg      Config
	g        *Graph
	in       DecodeInputs
	at       *Node // int32 [N, 2], row and position of each token
	cos, sin *Node // [N, 1, E]
	quarter  *Node // [E, E], a quarter turn; see rotateHalf
}

// node returns a weight of the decode layout.
func (d decoder) node(name string) *Node {
	v := d.scope.Store().GetVariable(decodePath(name))
	if v == nil {
		exceptions.Panicf("decode weight %s is not in the store: call ImportDecode first", name)
	}
	return v.NodeValue(d.g)
}

// matmul is x [N, in] times a weight [in, out], which may be stored in panels.
func (d decoder) matmul(x *Node, name string) *Node {
	depth := x.Shape().Dimensions[1]
	var parts []*Node
	for from := 0; from < depth; {
		panel := d.node(panelName(name, len(parts))) // [to - from, out]
		to := from + panel.Shape().Dimensions[0]
		parts = append(parts, DotGeneral(panelOf(x, 1, from, to), []int{1}, nil, panel, []int{0}, nil))
		from = to
	}
	return addUp(parts)
}

// norm is x / rms(x) * weight over the last axis.
func (d decoder) norm(x *Node, name string) *Node {
	ms := ReduceAndKeep(Square(x), ReduceMean, -1)
	return Mul(Mul(x, Inverse(Sqrt(AddScalar(ms, d.cfg.RMSNormEps)))), ExpandLeftToRank(d.node(name), x.Rank()))
}

// qkv projects x [N, D] to queries [N, H, E], keys and values [N, K, E].
func (d decoder) qkv(i int, x *Node) (q, k, v *Node) {
	x = d.norm(x, layerName(i, nameAttnNorm))
	heads := func(name string, n int) *Node {
		return Reshape(d.matmul(x, layerName(i, name)), x.Shape().Dimensions[0], n, d.cfg.HeadDim)
	}
	q = d.rotate(d.norm(heads(nameQ, d.cfg.NumAttentionHeads), layerName(i, nameQNorm)))
	k = d.rotate(d.norm(heads(nameK, d.cfg.NumKeyValueHeads), layerName(i, nameKNorm)))
	return q, k, heads(nameV, d.cfg.NumKeyValueHeads)
}

// rotate applies the rotary positions to x [N, heads, E]. A product with a signed
// permutation is exact, and costs less here than slices and concatenation.
func (d decoder) rotate(x *Node) *Node {
	turned := DotGeneral(x, []int{2}, nil, d.quarter, []int{0}, nil)
	return Add(Mul(x, d.cos), Mul(turned, d.sin))
}

// writeCache stores values [N, K, E] of the tokens in a cache [R, S, K, E]. The only
// scatter that every backend has is one that adds. Subtracting the old value first is
// exact and makes it an assignment.
func (d decoder) writeCache(cache, values *Node) *Node {
	old := Gather(cache, d.at)
	cache = ScatterSum(cache, d.at, Neg(old), false, true)
	return ScatterSum(cache, d.at, values, false, true)
}

// attend answers the queries [N, H, E] from the caches: [N, H*E].
func (d decoder) attend(q, k, v *Node) *Node {
	chunk, rows := d.in.Lengths.Shape().Dimensions[0], d.in.Lengths.Shape().Dimensions[1]
	h, e := d.cfg.NumAttentionHeads, d.cfg.HeadDim
	one := Ones(d.g, shapes.Make(dtypes.Int32, rows))
	answers := make([]*Node, chunk)
	for c := range chunk {
		at := Reshape(SliceAxis(d.in.Queries, 0, AxisElem(c)), rows, 1)
		query := InsertAxes(Gather(q, at), 1) // [R, 1, H, E]
		lengths := Reshape(SliceAxis(d.in.Lengths, 0, AxisElem(c)), rows)
		a, _ := attention.Core(query, k, v, attention.LayoutBSHD,
			attention.CoreOptions{QuerySeqLen: one, KVSeqLen: lengths})
		answers[c] = Reshape(a, rows, h*e)
	}
	all := answers[0]
	if chunk > 1 {
		all = Concatenate(answers, 0) // [C*R, H*E]
	}
	return Gather(all, InsertAxes(d.in.Answers, -1))
}

// mlp is the SwiGLU of layer i with its norm: [N, D]. Each panel of the intermediate
// values is computed by itself, because the CPU backend slices matrices element by
// element.
func (d decoder) mlp(i int, x *Node) *Node {
	x = d.norm(x, layerName(i, nameMLPNorm))
	parts := make([]*Node, storedPanels(d.cfg.IntermediateSize, d.cfg.HiddenSize))
	for p := range parts {
		gate := d.matmul(x, panelName(layerName(i, nameGate), p)) // [N, panel]
		up := d.matmul(x, panelName(layerName(i, nameUp), p))     // [N, panel]
		parts[p] = DotGeneral(Mul(Mul(gate, Sigmoid(gate)), up), []int{1}, nil, d.node(panelName(layerName(i, nameDown), p)), []int{0}, nil)
	}
	return addUp(parts)
}

// angles looks up the cosines and sines of the tokens' positions: [N, 1, E] each.
func (d decoder) angles(length int) (cos, sin *Node) {
	cos, sin = newRope(d.g, d.cfg, d.in.Positions, length).angles(1) // [N, 1, E/2]
	return Concatenate([]*Node{cos, cos}, -1), Concatenate([]*Node{sin, sin}, -1)
}

// rotateHalf is the matrix that maps a row (a, b) of two halves to (-b, a).
func rotateHalf(dim int) *tensors.Tensor {
	m := make([]float32, dim*dim)
	for i := range dim / 2 {
		m[(i+dim/2)*dim+i] = -1
		m[i*dim+i+dim/2] = 1
	}
	return tensors.FromFlatDataAndDimensions(m, dim, dim)
}
