package passes

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/internal/config"
	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/optimizer"
)

// BenchmarkOptimizer measures what clipping and AdamW cost per parameter, apart
// from forward and backward pass: as one graph for all tensors, which is what
// updates use, and as a graph for each tensor after one for the norm.
func BenchmarkOptimizer(b *testing.B) {
	for _, size := range []struct{ hidden, layers, ff int }{{128, 4, 384}, {256, 6, 768}} {
		cfg := Config{Backend: "go", Temperature: 1, Network: model.Config{
			VocabSize: 1024, HiddenSize: size.hidden, IntermediateSize: size.ff, NumHiddenLayers: size.layers, NumAttentionHeads: 4,
			NumKeyValueHeads: 2, HeadDim: 32, MaxPositionEmbeddings: 64, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02}}
		o := config.Optimizer{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.01, MaxGradNorm: 1, Schedule: "constant"}
		for _, perTensor := range []bool{false, true} {
			b.Run(fmt.Sprintf("%.1fM/per_tensor=%v", float64(cfg.Network.NumParameters())/1e6, perTensor), func(b *testing.B) {
				p := open(b, cfg, o)
				apply := applyAtOnce(p, o)
				if perTensor {
					apply = applyEach(b, p, o)
				}
				apply(b, fakeGradients(p))
				b.ResetTimer()
				for range b.N {
					b.StopTimer()
					grads := fakeGradients(p)
					b.StartTimer()
					apply(b, grads)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(cfg.Network.NumParameters()), "ns/param")
			})
		}
	}
}

func fakeGradients(p *Passes) []*tensors.Tensor {
	var out []*tensors.Tensor
	for _, spec := range p.state.Tuning().Trained {
		data := make([]float32, spec.Size())
		for i := range data {
			data[i] = float32(i%7-3) * 1e-3
		}
		out = append(out, tensors.FromFlatDataAndDimensions(data, spec.Shape...))
	}
	return out
}

func applyAtOnce(p *Passes, o config.Optimizer) func(testing.TB, []*tensors.Tensor) {
	return func(b testing.TB, grads []*tensors.Tensor) {
		out, err := p.Donate(Program{Kind: Apply}, []any{optimizer.Numbers(o, o.LR, 1)}, device.Wholes(grads))
		if err != nil {
			b.Fatal(err)
		}
		device.Release(out...)
	}
}

// applyEach builds one graph per tensor. Each sees its own norm: the graph for
// the norm of all would come on top.
func applyEach(b testing.TB, p *Passes, o config.Optimizer) func(testing.TB, []*tensors.Tensor) {
	all := p.state.Tuning().Trained
	execs := make([]*ml.Exec, len(all))
	for i, spec := range all {
		var err error
		execs[i], err = ml.NewExec(p.backend, p.state.Store(), func(scope *ml.Scope, in []*graph.Node) []*graph.Node {
			scope.SetTraining(in[0].Graph(), true)
			one := optimizer.Tuning{Trained: []model.TensorSpec{spec}}
			return []*graph.Node{optimizer.AdamW(scope.Store(), one, in[0], graph.ScalarZero(in[0].Graph(), in[0].DType()), in[1:])}
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return func(b testing.TB, grads []*tensors.Tensor) {
		for i, g := range grads {
			d, err := graph.DonateTensorBuffer(g, p.backend, 0)
			if err != nil {
				b.Fatal(err)
			}
			out, err := execs[i].Call(optimizer.Numbers(o, o.LR, 1), d)
			if err != nil {
				b.Fatal(err)
			}
			device.Free(out...)
		}
	}
}

// TestFrozenTensorsCostNoBackwardPass counts the nodes of the graph of an update:
// with all but the last norm frozen, the layers need no gradient.
func TestFrozenTensorsCostNoBackwardPass(t *testing.T) {
	cfg := Config{Backend: "go", Temperature: 1, Network: model.Config{
		VocabSize: 16, HiddenSize: 8, IntermediateSize: 8, NumHiddenLayers: 3, NumAttentionHeads: 1, NumKeyValueHeads: 1, HeadDim: 8,
		MaxPositionEmbeddings: 32, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1}}
	nodes := func(freeze ...string) int {
		p := open(t, cfg, config.Optimizer{Freeze: freeze})
		count := 0
		exec, err := ml.NewExec(p.backend, p.state.Store(), func(scope *ml.Scope, in []*graph.Node) []*graph.Node {
			out := p.builder.build(Program{Supervised, Gradient})(scope, in)
			count = len(in[0].Graph().Nodes())
			return out
		})
		if err != nil {
			t.Fatal(err)
		}
		ids := tensors.FromFlatDataAndDimensions(make([]int32, 16), 1, 16)
		mask := tensors.FromFlatDataAndDimensions(make([]bool, 16), 1, 16)
		out, err := exec.Call(ids, ids, mask, tensors.FromScalar(float32(1)))
		if err != nil {
			t.Fatal(err)
		}
		device.Free(out...)
		return count
	}
	all, last := nodes(), nodes("model.embed*", "model.layers.*")
	if last*2 > all {
		t.Errorf("%d nodes to train the last norm, %d to train all: want less than half", last, all)
	}
}
