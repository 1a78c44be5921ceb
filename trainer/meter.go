package trainer

import (
	"fmt"
	"math"

	"github.com/gomlx/gomlx/core/tensors"

	"temper/internal/rl"
)

// meter collects what an update reports.
type meter struct {
	sums                        [numSums]float64
	norm                        float64 // times loss tokens, once added to another meter
	tokens, lossTokens, updates int
	skipped                     int // updates left out for their norm
}

// addSums adds the sums of a microbatch.
func (m *meter) addSums(x *tensors.Tensor) error {
	values, err := tensors.CopyFlatData[float32](x)
	if err != nil {
		return fmt.Errorf("read sums: %w", err)
	}
	for i, v := range values {
		m.sums[i] += float64(v)
	}
	finalize([]*tensors.Tensor{x})
	return nil
}

// setNorm takes the norm of the gradients, which the graph has checked.
func (m *meter) setNorm(x *tensors.Tensor) error {
	values, err := tensors.CopyFlatData[float32](x)
	if err != nil {
		return fmt.Errorf("read gradient norm: %w", err)
	}
	m.norm = float64(values[0])
	finalize([]*tensors.Tensor{x})
	if !m.finite() {
		return m.diverged()
	}
	return nil
}

func (m *meter) finite() bool {
	sum := m.sums[sumLoss] + m.norm
	return !math.IsNaN(sum) && !math.IsInf(sum, 0)
}

func (m *meter) diverged() error {
	return fmt.Errorf("loss %v, gradient norm %v: %w", m.sums[sumLoss], m.norm, ErrDiverged)
}

// add weighs another update by its loss tokens.
func (m *meter) add(o meter) {
	n := float64(o.lossTokens)
	o.sums[sumLoss] *= n // the only sum that is a mean already
	for i, s := range o.sums {
		m.sums[i] += s
	}
	m.norm += o.norm * n
	m.tokens += o.tokens
	m.lossTokens += o.lossTokens
	m.updates += o.updates
	m.skipped += o.skipped
}

// metrics is the mean over the loss tokens of all updates added.
func (m *meter) metrics(lr float64) rl.TrainMetrics {
	n := float64(m.lossTokens)
	return rl.TrainMetrics{
		Loss: m.sums[sumLoss] / n, GradNorm: m.norm / n, LR: lr, Entropy: m.sums[sumEntropy] / n,
		ClipLow: m.sums[sumClipLow] / n, ClipHigh: m.sums[sumClipHigh] / n,
		PPOKL: m.sums[sumKL] / n, MismatchKL: m.sums[sumMismatch] / n,
		LossTokens: m.lossTokens, Tokens: m.tokens, Updates: m.updates, SkippedUpdates: m.skipped,
	}
}
