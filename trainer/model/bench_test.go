package model_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/model"
)

// BenchmarkGradient is a forward and backward pass with a cross-entropy loss on
// a network of the demo's size. Token counts that are multiples of 1024 make the
// backend's transposes thrash the cache; the second shape shows what that costs.
func BenchmarkGradient(b *testing.B) {
	cfg := model.Config{
		VocabSize: 400, HiddenSize: 128, IntermediateSize: 384, NumHiddenLayers: 4, NumAttentionHeads: 4,
		NumKeyValueHeads: 2, HeadDim: 32, MaxPositionEmbeddings: 320, RopeTheta: 1e4, RMSNormEps: 1e-6,
		TieWordEmbeddings: true, InitializerRange: 0.02,
	}
	for _, c := range []struct {
		batch, seq  int
		remat, like bool
	}{{32, 136, false, false}, {32, 128, false, false}, {32, 136, true, false}, {2, 256, false, false}, {2, 256, false, true}} {
		b.Run(fmt.Sprintf("%dx%d/remat=%v/like=%v", c.batch, c.seq, c.remat, c.like), func(b *testing.B) {
			opts := model.Options{Remat: c.remat, LikeDecode: c.like}
			store := ml.NewStore()
			if err := model.Init(nil, store, cfg, 1); err != nil {
				b.Fatal(err)
			}
			exec, err := ml.NewExec(backend(b), store, func(s *ml.Scope, tokens *graph.Node) []*graph.Node {
				hidden := model.Forward(s, cfg, model.Inputs{Tokens: tokens}, opts)
				logps := graph.LogSoftmax(head(opts)(s, cfg, hidden), -1)
				target := graph.OneHot(tokens, cfg.VocabSize, dtypes.Float32)
				loss := graph.Neg(graph.ReduceAllMean(graph.ReduceSum(graph.Mul(logps, target), -1)))
				return append([]*graph.Node{loss}, s.BuildTrainableVariablesGradientsGraph(loss)...)
			})
			if err != nil {
				b.Fatal(err)
			}
			tokens := make([][]int32, c.batch)
			for i := range tokens {
				for k := range c.seq {
					tokens[i] = append(tokens[i], int32((7*i+13*k)%cfg.VocabSize))
				}
			}
			cpu := cpuTime()
			for b.Loop() {
				out, err := exec.Call(tokens)
				if err != nil {
					b.Fatal(err)
				}
				for _, o := range out {
					o.MustFinalizeAll()
				}
			}
			n := float64(b.N * c.batch * c.seq)
			b.ReportMetric(n/b.Elapsed().Seconds(), "tok/s")
			b.ReportMetric(n/(cpuTime()-cpu).Seconds(), "tok/cpu-s")
		})
	}
}

// cpuTime is the CPU time of the process so far.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
