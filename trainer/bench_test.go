package trainer_test

import (
	"fmt"
	"testing"

	"temper/internal/rl"
	"temper/trainer"
)

// BenchmarkUpdate measures one policy update at the size of the demo:
// 64 trajectories of about 100 tokens.
func BenchmarkUpdate(b *testing.B) {
	for _, size := range []struct{ hidden, layers, heads, dim, ff, micro int }{
		{96, 3, 4, 24, 288, 4096},
		{128, 4, 4, 32, 384, 2048},
		{128, 4, 4, 32, 384, 4096},
		{128, 4, 4, 32, 384, 8192},
	} {
		cfg := tinyConfig()
		cfg.Model.VocabSize, cfg.Model.HiddenSize, cfg.Model.NumHiddenLayers = 384, size.hidden, size.layers
		cfg.Model.NumAttentionHeads, cfg.Model.NumKeyValueHeads, cfg.Model.HeadDim = size.heads, size.heads/2, size.dim
		cfg.Model.IntermediateSize, cfg.Model.MaxPositionEmbeddings = size.ff, 224
		cfg.Model.InitializerRange, cfg.MicrobatchTokens = 0.02, size.micro
		b.Run(fmt.Sprintf("d%dL%d-%dtok", size.hidden, size.layers, size.micro), func(b *testing.B) {
			tr := initialised(b, cfg)
			s := samples(64, 134, 1) // mean length 100
			update(b, tr, 1, s, 1)
			tokens := 0
			b.ResetTimer()
			for i := range b.N {
				m, err := tr.Update(b.Context(), rl.Batch{Step: i, Samples: s}, trainer.UpdateOptions{Optimizer: adam(), Position: constant(1)})
				if err != nil {
					b.Fatal(err)
				}
				tokens += m.Tokens
			}
			b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tok/s")
			b.ReportMetric(float64(cfg.Model.NumParameters())/1e6, "Mparams")
		})
	}
}
