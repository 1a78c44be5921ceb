// Package optimizer owns everything that training changes and the rule that changes it:
// the weights of a policy, AdamW's moments and the counters on which the next update
// depends, as variables of one store; the learning rate of a step; and the graph that
// turns gradients into new weights and moments. It runs no graph.
//
// Invariants: an update changes the weights and moments of all trained tensors, or of
// none. A State is whole or not ready, and one that is not ready is refused until Init,
// Import or Restore replaces it. Every step of a schedule has a rate above zero.
package optimizer

import (
	"math"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/internal/config"
	"temper/trainer/device"
	"temper/trainer/model/graphs"
)

// FirstMomentPath returns the path of the first moment of a weight in a store.
func FirstMomentPath(name string) string { return ml.JoinPath("/", "adamw_first", name) }

// SecondMomentPath returns the path of the second moment of a weight in a store.
func SecondMomentPath(name string) string { return ml.JoinPath("/", "adamw_second", name) }

// Variables lists the variables of a store that an update changes: weights and
// moments of the trained tensors.
func Variables(store *ml.Store, tuning Tuning) []*ml.Variable {
	var out []*ml.Variable
	for _, spec := range tuning.Trained {
		for _, path := range []string{graphs.VariablePath(spec.Name), FirstMomentPath(spec.Name), SecondMomentPath(spec.Name)} {
			out = append(out, store.GetVariable(path))
		}
	}
	return out
}

// Order of the optimizer's numbers, a float32 vector that is an input of the graph, so that no
// schedule is compiled into it.
const (
	numberLR        = iota
	numberBeta1     // decay of the first moment
	numberBeta2     // decay of the second moment
	numberOneMinus1 // 1 - beta1, in double precision before rounding
	numberOneMinus2 // 1 - beta2
	numberBias1     // 1 - beta1^t
	numberBias2     // 1 - beta2^t
	numberEps       // keeps the quotient finite
	numberDecay     // weight decay
	numberMaxNorm   // 0 = no clipping
	numberSkipNorm  // 0 = no update is skipped
	NumNumbers      // length of the vector
)

// Numbers returns the optimizer's numbers for update number n, counted from 1:
// float32 [NumNumbers].
func Numbers(o config.Optimizer, lr float64, n int64) *tensors.Tensor {
	x := make([]float32, NumNumbers)
	x[numberLR] = float32(lr)
	x[numberBeta1], x[numberBeta2] = float32(o.Beta1), float32(o.Beta2)
	x[numberOneMinus1], x[numberOneMinus2] = float32(1-o.Beta1), float32(1-o.Beta2)
	x[numberBias1], x[numberBias2] = float32(1-math.Pow(o.Beta1, float64(n))), float32(1-math.Pow(o.Beta2, float64(n)))
	x[numberEps], x[numberDecay], x[numberMaxNorm] = float32(o.Eps), float32(o.WeightDecay), float32(o.MaxGradNorm)
	x[numberSkipNorm] = float32(o.SkipGradNorm)
	return tensors.FromFlatDataAndDimensions(x, NumNumbers)
}

// Skips reports whether AdamW skips an update of this norm. It compares in the precision of
// the graph.
func Skips(o config.Optimizer, norm float64) bool {
	return o.SkipGradNorm > 0 && float32(norm) > float32(o.SkipGradNorm)
}

// AdamW updates weights and moments by AdamW with decoupled weight decay (arXiv 1711.05101,
// algorithm 2) after clipping the global norm of the gradients, and returns that norm. numbers
// is float32 [NumNumbers]. grads has a gradient for each tensor that tuning trains; frozen
// tensors are in neither the norm nor the update. Nothing changes when the norm or the watched
// scalar is not finite, or when the norm is above the limit for skipping.
//
//	m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g^2
//	w = w - lr (m / (1-b1^t) / (sqrt(v / (1-b2^t)) + eps) + decay w)
func AdamW(store *ml.Store, tuning Tuning, numbers, watched *graph.Node, grads []*graph.Node) *graph.Node {
	g := numbers.Graph()
	x := make([]*graph.Node, NumNumbers)
	for i := range x {
		x[i] = graph.Reshape(graph.SliceAxis(numbers, 0, graph.AxisElem(i)))
	}
	norm := globalNorm(grads)
	watched = graph.Add(watched, norm)
	finite := graph.Equal(graph.Sub(watched, watched), graph.ScalarZero(g, norm.DType())) // false for NaN and infinity
	exceeds := func(limit *graph.Node) *graph.Node {
		return graph.LogicalAnd(graph.GreaterThan(limit, graph.ScalarZero(g, norm.DType())), graph.GreaterThan(norm, limit))
	}
	apply := graph.LogicalAnd(finite, graph.LogicalNot(exceeds(x[numberSkipNorm])))
	clip := exceeds(x[numberMaxNorm])
	scale := graph.Where(clip, graph.Div(x[numberMaxNorm], norm), graph.ScalarOne(g, norm.DType()))

	for i, spec := range tuning.Trained {
		weight := store.GetVariable(graphs.VariablePath(spec.Name))
		first := store.GetVariable(FirstMomentPath(spec.Name))
		second := store.GetVariable(SecondMomentPath(spec.Name))
		w, m, v := weight.NodeValue(g), first.NodeValue(g), second.NodeValue(g)
		grad := graph.Mul(grads[i], scale)
		m1 := graph.Where(apply, graph.Add(graph.Mul(m, x[numberBeta1]), graph.Mul(grad, x[numberOneMinus1])), m)
		v1 := graph.Where(apply, graph.Add(graph.Mul(v, x[numberBeta2]), graph.Mul(graph.Square(grad), x[numberOneMinus2])), v)
		m1, v1 = device.Settle(m1, v1)
		root := graph.Sqrt(graph.Div(v1, x[numberBias2]))
		step := graph.Div(graph.Div(m1, x[numberBias1]), graph.Add(root, x[numberEps]))
		if tuning.decays(spec) {
			step = graph.Add(step, graph.Mul(w, x[numberDecay]))
		}
		weight.SetNodeValue(graph.Where(apply, graph.Sub(w, graph.Mul(step, x[numberLR])), w))
		first.SetNodeValue(m1)
		second.SetNodeValue(v1)
	}
	return norm
}

// globalNorm is the norm of all gradients as one vector.
func globalNorm(grads []*graph.Node) *graph.Node {
	var squares *graph.Node
	for i, grad := range grads {
		s := graph.ReduceAllSum(graph.Square(grad))
		if i == 0 {
			squares = s
		} else {
			squares = graph.Add(squares, s)
		}
	}
	return graph.Sqrt(squares)
}
