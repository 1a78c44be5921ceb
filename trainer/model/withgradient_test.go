package model_test

import (
	"slices"
	"testing"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/model"
)

// TestVJP: the value is the function's, the gradient the given one, also where
// the function's part of the graph is made again for it and where it occurs twice.
func TestVJP(t *testing.T) {
	backend, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Finalize()
	square := func(x *graph.Node) *graph.Node {
		return model.WithGradient(x, graph.Square, func(x, v *graph.Node) *graph.Node { return graph.Mul(graph.MulScalar(x, 10), v) })
	}
	for _, remat := range []bool{false, true} {
		exec, err := graph.NewExec(backend, func(x *graph.Node) (y, grad *graph.Node) {
			z := x
			if remat {
				z = z.Checkpoint()
			}
			z = square(square(graph.AddScalar(z, 1))) // (x+1)^4
			if remat {
				z = z.StopCheckpoint()
			}
			y = graph.ReduceAllSum(z)
			return y, graph.Gradient(y, x)[0]
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Call([]float32{0, 1, 2})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := out[0].Value(), float32(1+16+81); got != want {
			t.Errorf("remat %v: value %v, want %v", remat, got, want)
		}
		grad, err := tensors.CopyFlatData[float32](out[1])
		if err != nil {
			t.Fatal(err)
		}
		if want := []float32{100, 800, 2700}; !slices.Equal(grad, want) { // 10 (x+1)^2 10 (x+1)
			t.Errorf("remat %v: gradient %v, want %v", remat, grad, want)
		}
	}
}
