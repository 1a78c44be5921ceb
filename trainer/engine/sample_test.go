package engine

import (
	"math"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/google/go-cmp/cmp"
)

// TestSampleInvertsTheCDF draws from (0, 0.1, 0.2, 0, 0.3, 0.4, 0).
func TestSampleInvertsTheCDF(t *testing.T) {
	p := []float64{0, 0.1, 0.2, 0, 0.3, 0.4, 0}
	const largest = 1 - 1.0/(1<<24)
	rows := []struct {
		uniform, scale, greedy float32
		token                  int32
		prob                   float64
	}{
		{0, 1, 0, 1, 0.1},
		{0.0999, 1, 0, 1, 0.1},
		{0.1001, 1, 0, 2, 0.2},
		{0.2999, 1, 0, 2, 0.2},
		{0.3001, 1, 0, 4, 0.3},
		{0.5999, 1, 0, 4, 0.3},
		{0.6001, 1, 0, 5, 0.4},
		{largest, 1, 0, 5, 0.4},
		{0, 1, 1, 5, 0.4},
		{0.05, 2, 0, 2, 0.04 / 0.30}, // p squared, cumulative: 1/30, 5/30, 14/30, 1
		{0.16, 2, 0, 2, 0.04 / 0.30},
		{0.17, 2, 0, 4, 0.09 / 0.30},
		{largest, 0.5, 0, 5, math.Sqrt(0.4) / (math.Sqrt(0.1) + math.Sqrt(0.2) + math.Sqrt(0.3) + math.Sqrt(0.4))},
	}
	n := len(rows)
	logits, uniform, scale, greedy := make([]float32, 0, n*len(p)), make([]float32, n), make([]float32, n), make([]float32, n)
	var wantTokens []int32
	for i, r := range rows {
		for _, v := range p {
			logits = append(logits, float32(math.Max(math.Log(v), -1e30)))
		}
		uniform[i], scale[i], greedy[i] = r.uniform, r.scale, r.greedy
		wantTokens = append(wantTokens, r.token)
	}
	backend, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	exec, err := graph.NewExec(backend, func(l, u, s, g *graph.Node) (*graph.Node, *graph.Node) {
		return sample(l, l.Shape().Dimensions[1], sampling{uniform: u, scale: s, greedy: g})
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Call(tensors.FromFlatDataAndDimensions(logits, n, len(p)), uniform, scale, greedy)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantTokens, tensors.MustCopyFlatData[int32](out[0])); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	for i, lp := range tensors.MustCopyFlatData[float32](out[1]) {
		if d := math.Abs(math.Exp(float64(lp)) - rows[i].prob); d > 1e-6 {
			t.Errorf("row %d: probability %v, want %v", i, math.Exp(float64(lp)), rows[i].prob)
		}
	}
}
