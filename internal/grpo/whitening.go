package grpo

import "math"

// varianceEpsilon is under the root of the deviation of a batch, as in verl's
// masked_whiten.
const varianceEpsilon = 1e-8

// Moments sums up the advantages of a group's tokens in the loss, before whitening.
type Moments struct {
	Tokens  int     `json:"tokens"`
	Sum     float64 `json:"sum"`
	Squares float64 `json:"squares"`
}

// add counts the tokens of one trajectory.
func (m *Moments) add(advantage float32, tokens int) {
	a, n := float64(advantage), float64(tokens)
	m.Tokens += tokens
	m.Sum += n * a
	m.Squares += n * a * a
}

// Merge counts the tokens of another group. The order of groups decides the last bits.
func (m *Moments) Merge(o Moments) {
	m.Tokens += o.Tokens
	m.Sum += o.Sum
	m.Squares += o.Squares
}

// Whitening returns (a - mean)/sqrt(var + 1e-8) as a map, with mean and unbiased
// variance over the tokens of the batch (REINFORCE++ with baseline, arXiv 2501.03262).
func (m Moments) Whitening() *Whitening {
	if m.Tokens < 2 {
		return nil
	}
	n := float64(m.Tokens)
	mean := m.Sum / n
	variance := max(0, m.Squares-m.Sum*mean) / (n - 1)
	return &Whitening{Mean: mean, Scale: 1 / math.Sqrt(variance+varianceEpsilon)}
}

// Whitening normalizes the advantages of a batch. A nil one changes nothing.
type Whitening struct {
	Mean  float64 `json:"mean"`
	Scale float64 `json:"scale"`
}

// Apply returns the whitened advantage.
func (w *Whitening) Apply(advantage float64) float64 {
	if w == nil {
		return advantage
	}
	return (advantage - w.Mean) * w.Scale
}
