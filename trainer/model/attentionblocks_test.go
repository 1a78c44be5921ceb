package model

import (
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/cpu/kernels"
)

// TestBlocksEqualWholeMatrices holds attention in blocks against the operations that it
// replaces, on a row of several segments: answers bit for bit in the order of decoding,
// and everything within 1e-5 of the largest value, with kernels of either choice, also
// where layers are computed again.
func TestBlocksEqualWholeMatrices(t *testing.T) {
	const tokens = 150
	cfg := Config{NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 32}
	segments := make([]int32, tokens)
	for i := range segments {
		segments[i] = int32(i / 110)
	}
	backend, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Finalize()
	for _, choice := range []kernels.Choice{kernels.Native, kernels.Portable} {
		if kernels.Check(choice) != nil {
			continue
		}
		for _, remat := range []bool{false, true} {
			run := func(blocks, single bool) [][]float32 {
				defer kernels.Enter(choice)()
				return attended(t, backend, cfg, segments, func(a *fullAttention, g *graph.Graph) {
					if a.single, a.remat = single, remat; !blocks {
						a.inMatrices(g)
					}
				})
			}
			got, whole, fused := run(true, false), run(false, false), run(false, true)
			if !slices.Equal(got[0][:110*4*32], fused[0][:110*4*32]) { // the second segment begins within a vector of the fused operation
				t.Errorf("%s, remat %v: answers have other bits than those of the fused operation", choice, remat)
			}
			for i, name := range []string{"answers", "gradient of queries", "gradient of keys", "gradient of values"} {
				most, worst := 0.0, 0.0
				for j, w := range whole[i] {
					most, worst = max(most, math.Abs(float64(w))), max(worst, math.Abs(float64(got[i][j]-w)))
				}
				if !(worst <= 1e-5*most) || most == 0 {
					t.Errorf("%s, remat %v: %s off by %g of %g", choice, remat, name, worst, most)
				}
			}
		}
	}
}

// attended computes answers and the gradients of a sum of them.
func attended(t *testing.T, backend compute.Backend, cfg Config, segments []int32, set func(*fullAttention, *graph.Graph)) [][]float32 {
	t.Helper()
	n := len(segments)
	exec, err := ml.NewExec(backend, ml.NewStore(), func(_ *ml.Scope, in []*graph.Node) []*graph.Node {
		opts := Options{LikeDecode: true}
		a := newAttention(cfg, Inputs{Tokens: in[3], Segments: in[3]}, opts)
		set(a, in[0].Graph())
		x := in[0]
		if a.remat {
			x = x.Checkpoint()
		}
		o := a.attend(x, in[1], in[2])
		loss := graph.ReduceAllSum(graph.Mul(o, graph.Sin(graph.Add(o, in[4]))))
		if a.remat {
			loss = graph.ReduceAllSum(graph.Mul(o, graph.Sin(graph.Add(o, in[4]))).StopCheckpoint())
		}
		return append([]*graph.Node{o}, graph.Gradient(loss, in[0], in[1], in[2])...)
	})
	if err != nil {
		t.Fatal(err)
	}
	values := func(heads int, seed float64) *tensors.Tensor {
		data := make([]float32, n*heads*cfg.HeadDim)
		for i := range data {
			data[i] = float32(2 * math.Sin(seed*float64(i)))
		}
		return tensors.FromFlatDataAndDimensions(data, n, heads, cfg.HeadDim)
	}
	out, err := exec.Call(values(cfg.NumAttentionHeads, 1.3), values(cfg.NumKeyValueHeads, 0.7), values(cfg.NumKeyValueHeads, 2.1),
		tensors.FromFlatDataAndDimensions(segments, 1, n), values(cfg.NumAttentionHeads, 0.3))
	if err != nil {
		t.Fatal(err)
	}
	var flat [][]float32
	for _, x := range out {
		f, err := tensors.CopyFlatData[float32](x)
		if err != nil {
			t.Fatal(err)
		}
		flat = append(flat, f)
	}
	return flat
}
