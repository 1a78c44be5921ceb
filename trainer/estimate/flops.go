package estimate

import (
	"time"

	"temper/trainer/model"
)

// FLOPs counts the floating-point operations of training on some tokens; a
// multiply and an add are two.
type FLOPs struct {
	// Model counts the mathematics, forward and backward: for each token, 6 operations a
	// parameter in a matrix product, and 12 L H E a token of its sequence (PaLM, arXiv
	// 2204.02311, appendix B). The causal mask saves nothing in this count.
	Model float64 `json:"model"`
	// Hardware adds the second forward pass of rematerialisation.
	Hardware float64 `json:"hardware"`
}

// Train counts for the given number of tokens in sequences of the given mean length.
func Train(cfg model.Config, tokens, length int, remat bool) FLOPs {
	forward := float64(tokens) * (2*float64(matmulParameters(cfg)) +
		4*float64(cfg.NumHiddenLayers*cfg.NumAttentionHeads*cfg.HeadDim)*float64(length))
	f := FLOPs{Model: 3 * forward, Hardware: 3 * forward}
	if remat {
		f.Hardware += forward
	}
	return f
}

// Time returns the duration of the operations on the devices at a model FLOP utilisation, the
// share of the peak that the Model operations reach.
func (f FLOPs) Time(devices int, d Device, mfu float64) time.Duration {
	return time.Duration(f.Model / (float64(devices) * d.FLOPS * mfu) * float64(time.Second))
}

// MFU returns the model FLOP utilisation of a measured duration.
func (f FLOPs) MFU(devices int, d Device, took time.Duration) float64 {
	return f.Model / (took.Seconds() * float64(devices) * d.FLOPS)
}

// matmulParameters counts the weights in matrix products: all but the norms and the lookup of
// embeddings. A tied head counts as a product.
func matmulParameters(cfg model.Config) int {
	n := 0
	for _, t := range cfg.Tensors() {
		if len(t.Shape) > 1 {
			n += t.Size()
		}
	}
	if !cfg.TieWordEmbeddings {
		n -= cfg.VocabSize * cfg.HiddenSize
	}
	return n
}
