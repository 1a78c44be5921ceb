package trainer

import (
	"fmt"

	"temper/internal/rl"
	"temper/trainer/device"
	"temper/trainer/loss"
)

// meter collects the measures of an update.
type meter struct {
	sums                        [loss.NumMeasures]float64
	norm                        float64 // multiplied by loss tokens after addUpdate
	tokens, lossTokens, updates int
	sequences, groups           int // with a token in the loss
	skipped                     int // updates skipped for their norm
}

// addSums adds the sums of a microbatch.
func (m *meter) addSums(x device.Value) error {
	values, err := x.Floats()
	if err != nil {
		return fmt.Errorf("read sums: %w", err)
	}
	for i, v := range values {
		m.addMeasure(loss.Measure(i), float64(v))
	}
	device.Release(x)
	return nil
}

// addMeasure adds a measure of a part to the whole.
func (m *meter) addMeasure(i loss.Measure, v float64) {
	if i.IsMax() {
		m.sums[i] = max(m.sums[i], v)
		return
	}
	m.sums[i] += v
}

// setNorm reads the norm of the gradients, which the graph has checked.
func (m *meter) setNorm(x device.Value) error {
	values, err := x.Floats()
	if err != nil {
		return fmt.Errorf("read gradient norm: %w", err)
	}
	m.norm = float64(values[0])
	device.Release(x)
	if !m.finite() {
		return ErrDiverged
	}
	return nil
}

// finite reports whether every measure and the norm are finite. Otherwise the graph of an
// update changes nothing.
func (m *meter) finite() bool { return m.notFinite() == "" && finite(m.norm) }

// notFinite names the first measure that is not finite, "" for none.
func (m *meter) notFinite() string {
	for i, v := range m.sums {
		if !finite(v) {
			return loss.Measure(i).String()
		}
	}
	return ""
}

// addUpdate adds another update, weighted by its loss tokens.
func (m *meter) addUpdate(o meter) {
	n := float64(o.lossTokens)
	o.sums[loss.Loss] *= n // these two are means
	o.sums[loss.Penalty] *= n
	for i, v := range o.sums {
		m.addMeasure(loss.Measure(i), v)
	}
	m.norm += o.norm * n
	m.tokens += o.tokens
	m.lossTokens += o.lossTokens
	m.sequences += o.sequences
	m.updates += o.updates
	m.skipped += o.skipped
}

// metrics returns the means over the loss tokens of all updates added.
func (m *meter) metrics(lr float64) rl.TrainMetrics {
	n := float64(m.lossTokens)
	mean := func(i loss.Measure) float64 { return m.sums[i] / n }
	return rl.TrainMetrics{
		Loss: mean(loss.Loss), GradNorm: m.norm / n, LR: lr, Entropy: mean(loss.Entropy),
		ClipLow: mean(loss.ClipLow), ClipHigh: mean(loss.ClipHigh),
		PPOKL: mean(loss.OldKL), MismatchKL: mean(loss.RolloutDiff),
		LossTokens: m.lossTokens, Tokens: m.tokens, Updates: m.updates, SkippedUpdates: m.skipped,
		ClipDual: mean(loss.ClipDual), Untrained: mean(loss.Untrained), Penalty: mean(loss.Penalty),
		RefK1: mean(loss.RefK1), RefK2: mean(loss.RefK2), RefK3: mean(loss.RefK3),
		MismatchMax: m.sums[loss.RolloutDiffMax], RolloutK1: mean(loss.RolloutK1), RolloutK3: mean(loss.RolloutK3),
		WeightMean: mean(loss.Weight), WeightMax: m.sums[loss.WeightMax],
		WeightCapped: mean(loss.Capped), WeightLeftOut: mean(loss.LeftOut),
	}
}
