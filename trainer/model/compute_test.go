package model_test

import (
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/model"
)

// relative is the distance of two lists of rows in units of the second's length.
func relative(got, want [][]float64) float64 {
	diff, size := 0.0, 0.0
	for i := range want {
		for k := range want[i] {
			diff += (got[i][k] - want[i][k]) * (got[i][k] - want[i][k])
			size += want[i][k] * want[i][k]
		}
	}
	return math.Sqrt(diff / size)
}

// bfloat16 has 8 bits of mantissa: a factor is off by 2^-9 at most. Three layers
// of products of independent factors leave 1 % or so; twice that is the bound.
const halfRounding = 0.02

func TestBFloat16IsCloseToFloat32(t *testing.T) {
	for _, tied := range []bool{true, false} {
		cfg := small(tied)
		cfg.InitializerRange = 0.1
		ts := weightsOf(t, cfg)
		half := model.Options{Compute: dtypes.BFloat16}
		tokens := [][]int32{sentence(1, 12), sentence(2, 12)}
		want := forward(t, storeOf(t, cfg, ts), cfg, model.Options{}, tokens, nil, nil)
		got := forward(t, storeOf(t, cfg, ts), cfg, half, tokens, nil, nil)
		if d := relative(got, want); d > halfRounding || d == 0 {
			t.Errorf("tied %v: logits are off by %.4f of their size, want more than 0 and at most %v", tied, d, halfRounding)
		}
		names := tensorNames(cfg)
		loss, plain := gradient(t, cfg, model.Options{}, ts, names)
		other, grads := gradient(t, cfg, half, ts, names)
		if math.Abs(loss-other) > halfRounding*loss {
			t.Errorf("tied %v: loss %v, in float32 %v", tied, other, loss)
		}
		for i := range names {
			if d := relative(grads[i:i+1], plain[i:i+1]); !(d < 3*halfRounding) {
				t.Errorf("tied %v: gradient of %s is off by %.4f of its size", tied, names[i], d)
			}
		}
	}
}

func tensorNames(cfg model.Config) (names []string) {
	for _, spec := range cfg.Tensors() {
		names = append(names, spec.Name)
	}
	return names
}

// reachable are the nodes that results depend on.
func reachable(results ...*graph.Node) map[*graph.Node]bool {
	seen := map[*graph.Node]bool{}
	for len(results) > 0 {
		n := results[0]
		results = results[1:]
		if !seen[n] {
			seen[n] = true
			results = append(results, n.Inputs()...)
		}
	}
	return seen
}

// gradientNodes builds a training graph and returns what its results depend on.
func gradientNodes(t *testing.T, cfg model.Config, opts model.Options) map[*graph.Node]bool {
	t.Helper()
	var nodes map[*graph.Node]bool
	exec, err := ml.NewExec(backend(t), storeOf(t, cfg, weightsOf(t, cfg)), func(s *ml.Scope, tokens *graph.Node) *graph.Node {
		loss := graph.ReduceAllMean(graph.Square(model.Logits(s, cfg, model.Forward(s, cfg, model.Inputs{Tokens: tokens}, opts))))
		var vars []*graph.Node
		for _, n := range tensorNames(cfg) {
			vars = append(vars, s.Store().GetVariable(model.VariablePath(n)).NodeValue(tokens))
		}
		grads := graph.Gradient(loss, vars...)
		for i, g := range grads {
			if g.DType() != dtypes.Float32 {
				t.Errorf("gradient of %s is %s, want float32", tensorNames(cfg)[i], g.DType())
			}
		}
		nodes = reachable(append(grads, loss)...)
		return loss
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.Call([][]int32{sentence(1, 33)}); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// TestBFloat16ReachesEveryProduct: GoMLX alone would run the products of the
// backward pass, two thirds of the work, in float32.
func TestBFloat16ReachesEveryProduct(t *testing.T) {
	products := 0
	for n := range gradientNodes(t, small(false), model.Options{Compute: dtypes.BFloat16}) {
		switch n.Type() {
		case graph.NodeTypeDotGeneral:
			if n.Inputs()[1].Type() == graph.NodeTypeConstant {
				continue // the rotation of the CPU backend
			}
			products++
			for _, x := range n.Inputs() {
				if x.DType() != dtypes.BFloat16 {
					t.Errorf("product of %s and %s", n.Inputs()[0].Shape(), n.Inputs()[1].Shape())
				}
			}
		case graph.NodeTypeExp, graph.NodeTypeSqrt, graph.NodeTypeReduceSum:
			if n.DType() != dtypes.Float32 {
				t.Errorf("%s in %s", n.Type(), n.DType())
			}
		default: // may be either
		}
	}
	if want := 3 * (3*9 + 1); products != want {
		t.Errorf("%d products, want %d: forward and two gradients of 9 in each of 3 layers and of the head", products, want)
	}
}

// TestProductsNeedNoTransposes: the CPU backend multiplies [.., M, C] with
// [.., C, N] or [.., N, C]. It brings anything else into such a layout element by
// element, both factors, which took more time than all products together.
func TestProductsNeedNoTransposes(t *testing.T) {
	for n := range gradientNodes(t, small(false), model.Options{}) {
		if n.Type() != graph.NodeTypeDotGeneral {
			continue
		}
		a, b := n.Inputs()[0].Shape().Dimensions, n.Inputs()[1].Shape().Dimensions
		contracted, last := a[len(a)-1], len(b)-1
		if contracted != b[last] && contracted != b[last-1] { // equal only where they are contracted, see small
			t.Errorf("a product of %v and %v contracts the first factor's axis before the last", a, b)
		}
	}
}
