//go:build xla

package flash_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/device"
	"temper/trainer/xla/flash"
	"temper/trainer/xla/xlatest"
)

// sizes of attention in a test.
type sizes struct {
	batch, seq, heads, kv, dim, block int
	segments                          []int32 // [B, T]
}

// TestXLAEqualsWholeRows holds loops over blocks against softmax over whole rows and the
// gradient that GoMLX derives: rows that fill their blocks and rows that do not, several
// rows, groups of heads, packed segments that begin within blocks, padding.
func TestXLAEqualsWholeRows(t *testing.T) {
	backend := openXLA(t)
	packed := func(batch, seq int, lengths ...int) []int32 {
		var out []int32
		for row := range batch {
			at := 0
			for i, n := range lengths {
				for range n + row { // other borders in each row
					if at < seq {
						out, at = append(out, int32(i)), at+1
					}
				}
			}
			for ; at < seq; at++ {
				out = append(out, int32(len(lengths))) // padding
			}
		}
		return out
	}
	for _, c := range []sizes{
		{batch: 1, seq: 32, heads: 2, kv: 2, dim: 8, block: 16},
		{batch: 2, seq: 50, heads: 4, kv: 2, dim: 16, block: 16},
		{batch: 1, seq: 7, heads: 3, kv: 1, dim: 4, block: 16},
		{batch: 2, seq: 61, heads: 4, kv: 1, dim: 8, block: 8, segments: packed(2, 61, 5, 20, 1, 24)},
		{batch: 1, seq: 96, heads: 8, kv: 4, dim: 8, block: 12, segments: packed(1, 96, 33, 40)},
	} {
		t.Run(fmt.Sprintf("%dx%d by %d, %d heads of %d, packed %v", c.batch, c.seq, c.block, c.heads, c.kv, c.segments != nil), func(t *testing.T) {
			for _, dtype := range []dtypes.DType{dtypes.Float32, dtypes.BFloat16} {
				bound := 1e-5
				if dtype == dtypes.BFloat16 {
					bound = 4e-2
				}
				got, want := attend(t, backend, c, dtype, true), attend(t, backend, c, dtypes.Float32, false)
				for i, name := range []string{"answers", "gradient of queries", "gradient of keys", "gradient of values"} {
					if off := apart(got[i], want[i]); !(off <= bound) {
						t.Errorf("%s, %s: off by %.2g of the largest value", dtype, name, off)
					}
				}
			}
		})
	}
}

// apart is the largest difference as a part of the largest value.
func apart(got, want []float32) float64 {
	most, worst := 0.0, 0.0
	for i, w := range want {
		d := math.Abs(float64(got[i] - w))
		if math.IsNaN(d) {
			return math.NaN()
		}
		most, worst = max(most, math.Abs(float64(w))), max(worst, d)
	}
	return worst / most
}

// attend computes answers and the gradients of a sum of them, in blocks or by whole rows.
func attend(t *testing.T, backend compute.Backend, c sizes, dtype dtypes.DType, inBlocks bool) [][]float32 {
	t.Helper()
	n := c.batch * c.seq
	var segments any
	if c.segments != nil {
		segments = tensors.FromFlatDataAndDimensions(c.segments, c.batch, c.seq)
	} else {
		segments = tensors.FromFlatDataAndDimensions(make([]int32, n), c.batch, c.seq)
	}
	exec, err := graph.NewExec(backend, func(q, k, v, weight, segments *graph.Node) []*graph.Node {
		if c.segments == nil {
			segments = nil
		}
		if !inBlocks {
			o := wholeRows(c, q, k, v, segments)
			return append([]*graph.Node{o}, graph.Gradient(graph.ReduceAllSum(graph.Mul(o, weight)), q, k, v)...)
		}
		a := flash.New(flash.Sizes{Batch: c.batch, Tokens: c.seq, Heads: c.heads, KeyHeads: c.kv, HeadDim: c.dim, Block: c.block}, segments)
		v = graph.ConvertDType(v, dtype)
		o, logSum := a.Answer(q, k, v)
		dq, dk, dv := a.Gradient(q, k, v, o, logSum, graph.ConvertDType(weight, dtype))
		return []*graph.Node{graph.ConvertDType(o, dtypes.Float32), dq, dk, dv}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer exec.Finalize()
	values := func(heads int, seed float64) *tensors.Tensor {
		data := make([]float32, n*heads*c.dim)
		for i := range data {
			data[i] = float32(2 * math.Sin(seed*float64(i)))
		}
		return tensors.FromFlatDataAndDimensions(data, n, heads, c.dim)
	}
	out, err := exec.Call(values(c.heads, 1.3), values(c.kv, 0.7), values(c.kv, 2.1), values(c.heads, 0.3), segments)
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

// wholeRows is attention by matrices of all queries and all keys.
func wholeRows(c sizes, q, k, v, segments *graph.Node) *graph.Node {
	byHead := func(x *graph.Node, heads int) *graph.Node { // [B, K, G*T or T, E]
		x = graph.TransposeAllAxes(graph.Reshape(x, c.batch, c.seq, heads, c.dim), 0, 2, 1, 3)
		return graph.Reshape(x, c.batch, c.kv, -1, c.dim)
	}
	scores := graph.MulScalar(graph.Einsum("bkqe,bkte->bkqt", byHead(q, c.heads), byHead(k, c.kv)), 1/math.Sqrt(float64(c.dim)))
	scores = graph.Reshape(scores, c.batch, c.kv, -1, c.seq, c.seq)
	allowed := graph.InsertAxes(graph.LowerTriangular(q.Graph(), c.seq), 0, 0, 0)
	allowed = graph.BroadcastToDims(allowed, scores.Shape().Dimensions...)
	if segments != nil {
		same := graph.Equal(graph.InsertAxes(segments, 2), graph.InsertAxes(segments, 1))
		allowed = graph.LogicalAnd(allowed, graph.BroadcastToDims(graph.InsertAxes(same, 1, 1), scores.Shape().Dimensions...))
	}
	p := graph.Softmax(graph.Where(allowed, scores, graph.MulScalar(graph.OnesLike(scores), -1e30)), -1)
	o := graph.Einsum("bkqt,bkte->bkqe", graph.Reshape(p, c.batch, c.kv, -1, c.seq), byHead(v, c.kv))
	o = graph.TransposeAllAxes(graph.Reshape(o, c.batch, c.heads, c.seq, c.dim), 0, 2, 1, 3)
	return graph.Reshape(o, c.batch*c.seq, c.heads, c.dim)
}

// openXLA opens the backend of the tests.
func openXLA(t testing.TB) compute.Backend {
	t.Helper()
	backend, err := device.Open(xlatest.Backend(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Finalize)
	return backend
}
