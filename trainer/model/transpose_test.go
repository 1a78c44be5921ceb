package model

import (
	"slices"
	"testing"

	_ "github.com/gomlx/compute/gobackend"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
)

func goBackend(t *testing.T) compute.Backend {
	t.Helper()
	b, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Finalize)
	return b
}

// TestSwapLastMovesEveryElement covers one matrix and several, rows that are cut
// and rows that are not.
func TestSwapLastMovesEveryElement(t *testing.T) {
	b := goBackend(t)
	for _, dims := range [][]int{{3, 5}, {512, 3}, {1024, 7}, {2, 3, 4}, {2, 2, 512, 3}, {3, 1, 768, 2}, {1, 2, 5, 512}} {
		exec, err := NewExec(b, func(g *Graph) (*Node, *Node) {
			x := IotaFull(g, shapes.Make(dtypes.Float32, dims...))
			axes := leading(len(dims))
			axes[len(dims)-2], axes[len(dims)-1] = axes[len(dims)-1], axes[len(dims)-2]
			return swapLast(x), TransposeAllAxes(x, axes...)
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Call()
		if err != nil {
			t.Fatal(err)
		}
		if !out[0].Shape().Equal(out[1].Shape()) || !slices.Equal(flat(t, out[0]), flat(t, out[1])) {
			t.Errorf("%v: swapped is %s and differs from the transpose, %s", dims, out[0].Shape(), out[1].Shape())
		}
	}
}

// TestRotationHasOneMeaning: the CPU backend's way gives the bits of the other.
func TestRotationHasOneMeaning(t *testing.T) {
	cfg := Config{HeadDim: 8, RopeTheta: 1e4}
	exec, err := NewExec(goBackend(t), func(x, positions *Node) (*Node, *Node) {
		r := newRotation(x.Graph(), cfg, positions, 16)
		return r.byProduct(x), r.bySlices(x)
	})
	if err != nil {
		t.Fatal(err)
	}
	const n, heads = 6, 3
	values := make([]float32, n*heads*cfg.HeadDim)
	for i := range values {
		values[i] = float32(i%17)/3 - 2.5
	}
	out, err := exec.Call(tensors.FromFlatDataAndDimensions(values, n, heads, cfg.HeadDim), []int32{0, 3, 15, 1, 7, 2})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := flat(t, out[0]), flat(t, out[1]); !slices.Equal(got, want) {
		t.Errorf("by a product %v, by slices %v", got, want)
	}
}

func flat(t *testing.T, x *tensors.Tensor) []float32 {
	t.Helper()
	out, err := tensors.CopyFlatData[float32](x)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
