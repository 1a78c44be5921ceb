package trainer

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"temper/internal/config"
	"temper/trainer/qwen3"
)

// BenchmarkOptimizer measures what clipping and AdamW cost per parameter, apart
// from forward and backward pass: as one graph for all tensors, which is what
// updates use, and as a graph for each tensor after one for the norm.
func BenchmarkOptimizer(b *testing.B) {
	for _, size := range []struct{ hidden, layers, ff int }{{128, 4, 384}, {256, 6, 768}} {
		cfg := Config{MicrobatchTokens: 512, Temperature: 1, Model: qwen3.Config{
			VocabSize: 1024, HiddenSize: size.hidden, IntermediateSize: size.ff, NumHiddenLayers: size.layers, NumAttentionHeads: 4,
			NumKeyValueHeads: 2, HeadDim: 32, MaxPositionEmbeddings: 64, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02}}
		o := config.Optimizer{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.01, MaxGradNorm: 1, Schedule: "constant"}
		for _, perTensor := range []bool{false, true} {
			b.Run(fmt.Sprintf("%.1fM/per_tensor=%v", float64(cfg.Model.NumParameters())/1e6, perTensor), func(b *testing.B) {
				tr := tuned(b, cfg, o)
				apply := tr.applyAtOnce(o)
				if perTensor {
					apply = tr.applyEach(b, o)
				}
				apply(b, fakeGradients(tr))
				b.ResetTimer()
				for range b.N {
					b.StopTimer()
					grads := fakeGradients(tr)
					b.StartTimer()
					apply(b, grads)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(cfg.Model.NumParameters()), "ns/param")
			})
		}
	}
}

// tuned returns a trainer that is ready for updates by o.
func tuned(t testing.TB, cfg Config, o config.Optimizer) *Trainer {
	t.Helper()
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	if err := tr.Init(1); err != nil {
		t.Fatal(err)
	}
	if err := tr.tune(o); err != nil {
		t.Fatal(err)
	}
	return tr
}

func fakeGradients(tr *Trainer) []*tensors.Tensor {
	var out []*tensors.Tensor
	for _, spec := range tr.tuning.trained {
		data := make([]float32, spec.Size())
		for i := range data {
			data[i] = float32(i%7-3) * 1e-3
		}
		out = append(out, tensors.FromFlatDataAndDimensions(data, spec.Shape...))
	}
	return out
}

func (t *Trainer) applyAtOnce(o config.Optimizer) func(testing.TB, []*tensors.Tensor) {
	return func(b testing.TB, grads []*tensors.Tensor) {
		out, err := t.donate(program{pass: passApply}, []any{hyper(o, o.LR, 1)}, grads)
		if err != nil {
			b.Fatal(err)
		}
		finalize(out)
	}
}

// applyEach builds one graph per tensor. Each sees its own norm: the graph for
// the norm of all would come on top.
func (t *Trainer) applyEach(b testing.TB, o config.Optimizer) func(testing.TB, []*tensors.Tensor) {
	all := t.tuning.trained
	execs := make([]*model.Exec, len(all))
	for i, spec := range all {
		var err error
		execs[i], err = model.NewExec(t.backend, t.store, func(scope *model.Scope, in []*graph.Node) []*graph.Node {
			scope.SetTraining(in[0].Graph(), true)
			t.tuning.trained = []qwen3.TensorSpec{spec}
			defer func() { t.tuning.trained = all }()
			return []*graph.Node{t.adamW(scope, in[0], graph.ScalarZero(in[0].Graph(), in[0].DType()), in[1:])}
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return func(b testing.TB, grads []*tensors.Tensor) {
		for i, g := range grads {
			d, err := graph.DonateTensorBuffer(g, t.backend, 0)
			if err != nil {
				b.Fatal(err)
			}
			out, err := execs[i].Call(hyper(o, o.LR, 1), d)
			if err != nil {
				b.Fatal(err)
			}
			finalize(out)
		}
	}
}

// TestFrozenTensorsCostNoBackwardPass counts the nodes of the graph of an update:
// with all but the last norm frozen, the layers need no gradient.
func TestFrozenTensorsCostNoBackwardPass(t *testing.T) {
	cfg := Config{MicrobatchTokens: 512, Temperature: 1, Model: qwen3.Config{
		VocabSize: 16, HiddenSize: 8, IntermediateSize: 8, NumHiddenLayers: 3, NumAttentionHeads: 1, NumKeyValueHeads: 1, HeadDim: 8,
		MaxPositionEmbeddings: 32, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1}}
	nodes := func(freeze ...string) int {
		tr := tuned(t, cfg, config.Optimizer{Freeze: freeze})
		count := 0
		exec, err := model.NewExec(tr.backend, tr.store, func(scope *model.Scope, in []*graph.Node) []*graph.Node {
			out := tr.build(program{objectiveSFT, passGradient})(scope, in)
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
		finalize(out)
		return count
	}
	all, last := nodes(), nodes("model.embed*", "model.layers.*")
	if last*2 > all {
		t.Errorf("%d nodes to train the last norm, %d to train all: want less than half", last, all)
	}
}
