package trainer

import (
	"math"
	"strings"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"temper/internal/config"
	"temper/trainer/qwen3"
)

// Order of the optimizer's numbers, a float32 vector that is fed to the graph,
// so that no schedule is compiled into it.
const (
	hyperLR = iota
	hyperBeta1
	hyperBeta2
	hyperRest1 // 1 - beta1, in double precision before rounding
	hyperRest2
	hyperBias1 // 1 - beta1^t
	hyperBias2
	hyperEps
	hyperDecay
	hyperMaxNorm  // 0 = no clipping
	hyperSkipNorm // 0 = no update is left out
	numHyper
)

// hyper returns the optimizer's numbers for update number n, counted from 1.
func hyper(o config.Optimizer, lr float64, n int64) *tensors.Tensor {
	h := make([]float32, numHyper)
	h[hyperLR] = float32(lr)
	h[hyperBeta1], h[hyperBeta2] = float32(o.Beta1), float32(o.Beta2)
	h[hyperRest1], h[hyperRest2] = float32(1-o.Beta1), float32(1-o.Beta2)
	h[hyperBias1], h[hyperBias2] = float32(1-math.Pow(o.Beta1, float64(n))), float32(1-math.Pow(o.Beta2, float64(n)))
	h[hyperEps], h[hyperDecay], h[hyperMaxNorm] = float32(o.Eps), float32(o.WeightDecay), float32(o.MaxGradNorm)
	h[hyperSkipNorm] = float32(o.SkipGradNorm)
	return tensors.FromFlatDataAndDimensions(h, numHyper)
}

// skips says whether adamW leaves an update of this norm out, in the precision
// in which it compares.
func skips(o config.Optimizer, norm float64) bool {
	return o.SkipGradNorm > 0 && float32(norm) > float32(o.SkipGradNorm)
}

// decays says whether weight decay applies: to matrices always; to norms and
// biases, which are vectors, and to the embedding table, whose rows of rare
// tokens get no gradient that could hold against it, by switch.
func (a tuning) decays(spec qwen3.TensorSpec) bool {
	switch {
	case len(spec.Shape) < 2:
		return a.decayVectors
	case strings.Contains(spec.Name, "embed_tokens"):
		return a.decayEmbeddings
	default:
		return true
	}
}

// Where the store keeps AdamW's moments of a weight.
func firstMomentPath(name string) string  { return model.JoinPath("/", "adamw_first", name) }
func secondMomentPath(name string) string { return model.JoinPath("/", "adamw_second", name) }

// adamW updates weights and moments by AdamW with decoupled weight decay
// (arXiv 1711.05101, algorithm 2) after clipping the global norm of the
// gradients, and returns that norm. When the norm or the watched scalar is not
// finite, or the norm is above the one at which updates are left out, nothing
// changes. Frozen tensors are in neither the norm nor the update.
//
//	m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g^2
//	w = w - lr (m / (1-b1^t) / (sqrt(v / (1-b2^t)) + eps) + decay w)
func (t *Trainer) adamW(scope *model.Scope, hyper, watched *graph.Node, grads []*graph.Node) *graph.Node {
	g := hyper.Graph()
	h := make([]*graph.Node, numHyper)
	for i := range h {
		h[i] = graph.Reshape(graph.SliceAxis(hyper, 0, graph.AxisElem(i)))
	}
	var squares *graph.Node
	for i, grad := range grads {
		s := graph.ReduceAllSum(graph.Square(grad))
		if i == 0 {
			squares = s
		} else {
			squares = graph.Add(squares, s)
		}
	}
	norm := graph.Sqrt(squares)
	watched = graph.Add(watched, norm)
	finite := graph.Equal(graph.Sub(watched, watched), graph.ScalarZero(g, norm.DType())) // false for NaN and infinity
	exceeds := func(limit *graph.Node) *graph.Node {
		return graph.LogicalAnd(graph.GreaterThan(limit, graph.ScalarZero(g, norm.DType())), graph.GreaterThan(norm, limit))
	}
	apply := graph.LogicalAnd(finite, graph.LogicalNot(exceeds(h[hyperSkipNorm])))
	clip := exceeds(h[hyperMaxNorm])
	scale := graph.Where(clip, graph.Div(h[hyperMaxNorm], norm), graph.ScalarOne(g, norm.DType()))

	for i, spec := range t.tuning.trained {
		weight := scope.Store().GetVariable(qwen3.VariablePath(spec.Name))
		first := scope.Store().GetVariable(firstMomentPath(spec.Name))
		second := scope.Store().GetVariable(secondMomentPath(spec.Name))
		w, m, v := weight.NodeValue(g), first.NodeValue(g), second.NodeValue(g)
		grad := graph.Mul(grads[i], scale)
		m1 := graph.Add(graph.Mul(m, h[hyperBeta1]), graph.Mul(grad, h[hyperRest1]))
		v1 := graph.Add(graph.Mul(v, h[hyperBeta2]), graph.Mul(graph.Square(grad), h[hyperRest2]))
		root := graph.Sqrt(graph.Div(v1, h[hyperBias2]))
		step := graph.Div(graph.Div(m1, h[hyperBias1]), graph.Add(root, h[hyperEps]))
		if t.tuning.decays(spec) {
			step = graph.Add(step, graph.Mul(w, h[hyperDecay]))
		}
		weight.SetNodeValue(graph.Where(apply, graph.Sub(w, graph.Mul(step, h[hyperLR])), w))
		first.SetNodeValue(graph.Where(apply, m1, m))
		second.SetNodeValue(graph.Where(apply, v1, v))
	}
	return norm
}
