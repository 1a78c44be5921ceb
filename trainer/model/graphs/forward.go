package graphs

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	ml "github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/support/exceptions"

	"temper/trainer/model"
)

// Inputs are the tokens of a forward pass. Rows are padded on the right. Padding has a
// separate segment, and the caller ignores its hidden states.
type Inputs struct {
	Tokens *Node // int32 [B, T]
	// Positions of the tokens within their sequence, below T; nil means 0..T-1.
	Positions *Node // int32 [B, T]
	// Segments keep packed sequences apart: a token attends to earlier tokens of
	// the same row with an equal segment. The tokens of a segment follow one another. nil
	// means one segment per row.
	Segments *Node // int32 [B, T]
}

// Options trade memory and accuracy for time.
type Options struct {
	// Compute is the type in which matrices are multiplied: Float32, also when
	// empty, or BFloat16. Sums, the residual stream, norms, rotations, softmax and
	// the weights and their gradients are float32 in any case.
	Compute dtypes.DType
	// Remat recomputes each layer in the backward pass instead of keeping its
	// activations: about half the memory, about 15 % slower.
	Remat bool
	// LikeDecode adds in the order of DecodeStep, so that the CPU backend computes the
	// same bits that it decoded with. It costs time. It has no effect where Compute is
	// less than float32, or where the backend has no fused operation for attention.
	LikeDecode bool
	// PlainSoftmax computes softmax in operations whose bits do not depend on the length
	// of the CPU's vectors. The backend's own does, and is faster.
	PlainSoftmax bool
	// Layout places the graph on several devices; nil leaves that to the backend.
	Layout Layout
}

// Forward returns the hidden states [B, T, D] after the final norm, in the type
// of Options.Compute.
//
// Outside attention the tokens are one axis N = B*T. The gradient of each weight
// transposes the input of the weight, and the CPU backend transposes a matrix fast but
// anything else element by element.
func Forward(scope *ml.Scope, cfg model.Config, in Inputs, opts Options) *Node {
	w := weights{scope: scope, cfg: cfg, g: in.Tokens.Graph(), compute: opts.Compute, likeDecode: opts.LikeDecode, layout: opts.Layout}
	if w.compute == dtypes.InvalidDType {
		w.compute = dtypes.Float32
	}
	scope.SetTraining(w.g, true)
	in.Tokens.AssertRank(2)
	batch, seq := in.Tokens.Shape().Dimensions[0], in.Tokens.Shape().Dimensions[1]
	positions := in.Positions
	if positions == nil {
		positions = Iota(w.g, shapes.Make(dtypes.Int32, batch, seq), 1)
	}
	w.rotation = newRotation(w.g, cfg, Reshape(positions, -1), seq)
	att := newAttention(cfg, in, opts)
	if att.inLoops != nil {
		w.keepProducts, w.order = !opts.Remat, &gradientOrder{behind: opts.Layout != nil}
	}

	x := w.embed(Reshape(in.Tokens, -1)) // [N, D]
	for _, l := range cfg.Layers() {
		x = w.order.layer(x)
		if opts.Remat {
			x = x.Checkpoint()
		}
		x = w.kept(x)
		q, k, v := model.QKV(w, &l, x) // [N, H|K|K, E]
		x = w.kept(w.tokens(Add(x, wide(w.Linear(l.O, Reshape(att.attend(q, k, v), batch*seq, -1))))))
		x = w.tokens(Add(x, wide(model.FeedForward(w, &l, x))))
	}
	if opts.Remat || w.keepProducts {
		x = x.StopCheckpoint()
	}
	return Reshape(narrow(w.Norm(model.NameNorm, x), w.compute), batch, seq, cfg.HiddenSize)
}

// Logits maps hidden states [..., D] of any type to scores over the vocabulary
// [..., V] in float32.
func Logits(scope *ml.Scope, cfg model.Config, hidden *Node) *Node {
	return logits(scope, cfg, hidden, func(x, y *Node) *Node {
		if x.DType() != dtypes.Float32 {
			return productAs(dtypes.Float32, x, y)
		}
		return weighted(x, y, cfg.VocabSize)
	})
}

// LogitsLikeDecode is Logits with the sums of DecodeLogits; see Options.
func LogitsLikeDecode(scope *ml.Scope, cfg model.Config, hidden *Node) *Node {
	if hidden.DType() != dtypes.Float32 {
		return Logits(scope, cfg, hidden)
	}
	return logits(scope, cfg, hidden, func(x, y *Node) *Node { return productLikeDecode(x, y, cfg.VocabSize) })
}

// logits is a product of hidden states [..., D] and the head.
func logits(scope *ml.Scope, cfg model.Config, hidden *Node, product func(x, y *Node) *Node) *Node {
	w := weights{scope: scope, cfg: cfg, g: hidden.Graph()}
	scope.SetTraining(w.g, true)
	dims := slices.Clone(hidden.Shape().Dimensions)
	logits := product(Reshape(hidden, -1, cfg.HiddenSize), w.node(cfg.HeadName())) // [N, V]
	dims[len(dims)-1] = cfg.VocabSize
	return Reshape(logits, dims...)
}

// LogitsPlaced is Logits under a layout.
func LogitsPlaced(scope *ml.Scope, cfg model.Config, hidden *Node, layout Layout) *Node {
	w := weights{scope: scope, cfg: cfg, g: hidden.Graph(), layout: layout}
	scope.SetTraining(w.g, true)
	dims := slices.Clone(hidden.Shape().Dimensions)
	logits := w.placed(dtypes.Float32, Reshape(hidden, -1, cfg.HiddenSize), cfg.HeadName()) // [N, V]
	dims[len(dims)-1] = cfg.VocabSize
	return Reshape(logits, dims...)
}

// Head is the weight that maps hidden states to the vocabulary: [V, D]. Under a layout it
// is whole on every device of the data axis.
func Head(scope *ml.Scope, cfg model.Config, g *Graph, layout Layout) *Node {
	return weights{scope: scope, cfg: cfg, g: g, layout: layout}.whole(cfg.HeadName())
}

// weights gives graph functions access to the variables of a store.
type weights struct {
	scope *ml.Scope
	cfg   model.Config
	g     *Graph
	// compute is the type of the factors of products.
	compute dtypes.DType
	// likeDecode asks for products with the sums of DecodeStep.
	likeDecode bool
	// layout places values on several devices; nil leaves them alone.
	layout Layout
	// keepProducts keeps the results of products and the residual stream for the gradient,
	// and recomputes the values between them: norms, rotations, the products of SwiGLU.
	keepProducts bool
	order        *gradientOrder // nil leaves the order of gradients to the backend
	rotation     rotation
}

var _ model.Ops[*Node] = weights{}

// kept marks x as a value to keep for the gradient; see keepProducts.
func (w weights) kept(x *Node) *Node {
	if !w.keepProducts {
		return x
	}
	return x.Checkpoint()
}

// node returns a weight as the network computes with it.
func (w weights) node(name string) *Node {
	weight := w.variable(name)
	if a, b, ok := w.cfg.AdaptersOf(name); ok {
		weight = Merged(w.cfg, weight, w.variable(a), w.variable(b))
	}
	return w.order.weight(weight)
}

// variable returns the variable with the given name as a node.
func (w weights) variable(name string) *Node {
	v := w.scope.Store().GetVariable(VariablePath(name))
	if v == nil {
		exceptions.Panicf("weight %s is not in the store: call Init or Import first", name)
	}
	return v.NodeValue(w.g)
}

// embed looks up the embeddings of tokens [N]: [N, D].
func (w weights) embed(tokens *Node) *Node {
	return w.tokens(Gather(w.whole(model.NameEmbed), InsertAxes(tokens, -1)))
}

// Norm is x / rms(x) * weight over the last axis.
func (w weights) Norm(weight string, x *Node) *Node {
	ms := ReduceAndKeep(Square(x), ReduceMean, -1) // [..., 1]
	x = Mul(x, Inverse(Sqrt(AddScalar(ms, w.cfg.RMSNormEps))))
	return Mul(x, ExpandLeftToRank(w.node(weight), x.Rank()))
}

// HeadNorm is Norm for x [N, heads, E].
func (w weights) HeadNorm(weight string, x *Node) *Node { return w.Norm(weight, x) }

// wide converts to float32.
func wide(x *Node) *Node { return narrow(x, dtypes.Float32) }

// Rotate turns x [N, heads, E].
func (w weights) Rotate(x *Node) *Node { return w.rotation.apply(x) }

// ProjectQKV projects x [N, D] to heads [N, H|K|K, E], the queries and keys in float32.
func (w weights) ProjectQKV(l *model.Layer, x *Node) (q, k, v *Node) {
	qkv := w.linears(x, l.Q, l.K, l.V)
	for j := range qkv {
		qkv[j] = Reshape(w.kept(qkv[j]), x.Shape().Dimensions[0], -1, w.cfg.HeadDim)
	}
	return wide(qkv[0]), wide(qkv[1]), qkv[2]
}

// GateUp projects x [N, D] to [N, F] twice.
func (w weights) GateUp(l *model.Layer, x *Node) (gate, up *Node) {
	both := w.linears(x, l.Gate, l.Up)
	return w.kept(both[0]), w.kept(both[1])
}

// Gated is SwiGLU's product of gate and up [N, F], in float32.
func (w weights) Gated(gate, up *Node) *Node { return Mul(silu(wide(gate)), wide(up)) }

// Linear is linears with one weight.
func (w weights) Linear(l model.Linear, x *Node) *Node { return w.linears(x, l)[0] }

// silu is x s with s = sigma(x), element by element. Its derivative is written as
// s + u (1 - s) with u = x s, which takes two operations less than the derivative that
// GoMLX composes.
func silu(x *Node) *Node {
	value := func(x *Node) *Node { return Mul(x, Sigmoid(x)) }
	return WithGradient(x, value, func(x, v *Node) *Node {
		s, u := Sigmoid(x), value(x)
		return Mul(v, Add(Sub(u, Mul(u, s)), s))
	})
}
