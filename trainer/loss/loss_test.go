package loss_test

import (
	"math"
	"testing"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/loss"
)

type node = graph.Node

// call runs a graph function once on the CPU backend.
func call(t *testing.T, fn func(in []*node) []*node, args ...any) []*tensors.Tensor {
	t.Helper()
	backend, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Finalize)
	exec, err := graph.NewExec(backend, fn)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Call(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func flat(t *testing.T, x *tensors.Tensor) []float32 {
	t.Helper()
	data, err := tensors.CopyFlatData[float32](x)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func near(t *testing.T, what string, got float32, want, tolerance float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > tolerance || math.IsNaN(float64(got)) {
		t.Errorf("%s = %v, want %v within %v", what, got, want, tolerance)
	}
}

func TestLogprobsAndEntropy(t *testing.T) {
	// softmax of (ln 1, ln 2, ln 5) is (1/8, 2/8, 5/8); the second row is the
	// same distribution shifted far beyond what exp can hold.
	ln2, ln5 := float32(math.Ln2), float32(math.Log(5))
	logits := [][][]float32{{{0, ln2, ln5}, {500, 500 + ln2, 500 + ln5}}}
	targets := [][]int32{{2, 0}}
	entropy := -(1.0/8*math.Log(1.0/8) + 2.0/8*math.Log(2.0/8) + 5.0/8*math.Log(5.0/8))

	out := call(t, func(in []*node) []*node {
		lp, h := loss.Logprobs(in[0], in[1], 1)
		return []*node{lp, h}
	}, logits, targets)
	lp, h := flat(t, out[0]), flat(t, out[1])
	near(t, "log p(5/8)", lp[0], math.Log(5.0/8), 1e-6)
	near(t, "log p(1/8), shifted", lp[1], math.Log(1.0/8), 1e-4)
	near(t, "entropy", h[0], entropy, 1e-6)
	near(t, "entropy, shifted", h[1], entropy, 1e-4)

	// Temperature 1/2 squares the weights: 1, 4, 25.
	out = call(t, func(in []*node) []*node {
		lp, h := loss.Logprobs(in[0], in[1], 0.5)
		return []*node{lp, h}
	}, logits, targets)
	near(t, "log p at temperature 0.5", flat(t, out[0])[0], math.Log(25.0/30), 1e-6)
}

func TestLogprobsGradient(t *testing.T) {
	// d log p(target) / d logits = onehot - softmax, and entropy adds nothing.
	ln2, ln5 := float32(math.Ln2), float32(math.Log(5))
	out := call(t, func(in []*node) []*node {
		lp, h := loss.Logprobs(in[0], in[1], 1)
		return graph.Gradient(graph.ReduceAllSum(graph.Add(lp, h)), in[0])
	}, [][]float32{{0, ln2, ln5}}, []int32{1})
	for i, want := range []float64{-1.0 / 8, 1 - 2.0/8, -5.0 / 8} {
		near(t, "gradient", flat(t, out[0])[i], want, 1e-6)
	}
}

func TestSFT(t *testing.T) {
	inf := float32(math.Inf(-1))
	out := call(t, func(in []*node) []*node {
		l := loss.SFT(in[0], in[1], in[2])
		return append([]*node{l}, graph.Gradient(l, in[0])...)
	}, [][]float32{{-1, -2}, {-4, inf}}, [][]bool{{true, false}, {true, false}}, float32(10))
	near(t, "loss", flat(t, out[0])[0], 0.5, 1e-7)
	for i, want := range []float64{-0.1, 0, -0.1, 0} {
		near(t, "gradient", flat(t, out[1])[i], want, 1e-7)
	}
}

func TestAbsDifference(t *testing.T) {
	out := call(t, func(in []*node) []*node { return []*node{loss.AbsDifference(in[0], in[1], in[2])} },
		[]float32{-1, -2, 9}, []float32{-1.5, -1, 0}, []bool{true, true, false})
	near(t, "sum", flat(t, out[0])[0], 1.5, 1e-7)
}
