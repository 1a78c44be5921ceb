package loss_test

import (
	"math"

	"temper/internal/config"
	"temper/trainer/loss"
)

// token is one position of a sequence.
type token struct {
	lp, old, rollout, ref float64
	mask, selected        bool
}

// sequence is one trajectory.
type sequence struct {
	advantage float64
	group     int // of one problem
	tokens    []token
}

func (s sequence) lossTokens() (n int) {
	for _, t := range s.tokens {
		if t.mask {
			n++
		}
	}
	return n
}

// groupTokens are the loss tokens of each group that has any.
func groupTokens(sequences []sequence) map[int]int {
	out := map[int]int{}
	for _, s := range sequences {
		if n := s.lossTokens(); n > 0 {
			out[s.group] += n
		}
	}
	return out
}

func clamp(x, low, high float64) float64 { return math.Min(math.Max(x, low), high) }

// reference is the objective in the words of the papers, sequence by sequence
// and in double precision. present are the same sequences with the
// log-probabilities at which gradients stop; differences in lp alone are what a
// gradient sees.
func reference(cfg config.Loss, sequences, present []sequence) (total float64, m [loss.NumMeasures]float64) {
	tokens, nonEmpty := 0, 0
	groups := groupTokens(sequences)
	for _, s := range sequences {
		tokens += s.lossTokens()
		if s.lossTokens() > 0 {
			nonEmpty++
		}
	}
	var policy, penalty float64
	for i, s := range sequences {
		if s.lossTokens() == 0 {
			continue
		}
		share := 1 / float64(tokens)
		switch cfg.Aggregation {
		case config.AggregateSequences:
			share = 1 / float64(s.lossTokens()) / float64(nonEmpty)
		case config.AggregateConstant:
			share = 1 / float64(cfg.ConstantTokens) / float64(nonEmpty)
		case config.AggregateGroups:
			share = 1 / float64(groups[s.group]) / float64(len(groups))
		}
		gains, kls := referenceSequence(cfg, s, present[i], &m)
		policy -= gains * share
		penalty += kls * share
	}
	m[loss.Penalty] = cfg.KL.Coefficient * penalty
	m[loss.Loss] = policy + m[loss.Penalty]
	return m[loss.Loss], m
}

// referenceSequence sums the gains and the penalties of a sequence.
func referenceSequence(cfg config.Loss, s, present sequence, m *[loss.NumMeasures]float64) (gains, kls float64) {
	n := float64(s.lossTokens())
	old := func(t token) float64 {
		if cfg.OldLogprobs == config.OldRollout {
			return t.rollout
		}
		return t.old
	}
	var sequenceLog, apart float64
	for _, t := range s.tokens {
		if t.mask {
			sequenceLog += (t.lp - old(t)) / n
			apart += t.old - t.rollout
		}
	}
	for i, t := range s.tokens {
		if !t.mask {
			continue
		}
		train := t.old
		if cfg.OldLogprobs == config.OldRollout {
			train = present.tokens[i].lp
		}
		d := train - t.rollout
		m[loss.RolloutDiff] += math.Abs(d)
		m[loss.RolloutDiffMax] = math.Max(m[loss.RolloutDiffMax], math.Abs(d))
		m[loss.RolloutK1] -= d
		m[loss.RolloutK3] += math.Min(math.Exp(d)-d-1, 10)
		m[loss.OldKL] += old(t) - t.lp

		w := math.Exp(d)
		if cfg.Correction.Level == config.CorrectSequence {
			w = math.Exp(apart)
		}
		m[loss.Weight] += w
		m[loss.WeightMax] = math.Max(m[loss.WeightMax], w)
		weight, trains := 1.0, t.selected || cfg.EntropyFraction == 0
		if cfg.Correction.Level != "" {
			weight = w
			if c := cfg.Correction.Cap; c > 0 && w > c {
				weight = c
				m[loss.Capped]++
			}
			if high := cfg.Correction.MaskHigh; high > 0 && (w < cfg.Correction.MaskLow || w > high) {
				trains = false
				m[loss.LeftOut]++
			}
		}
		gain := referenceGain(cfg, s.advantage, t.lp, present.tokens[i].lp-old(t), t.lp-old(t), sequenceLog, m)
		if trains {
			gains += weight * gain
		} else {
			m[loss.Untrained]++
		}
		if cfg.KL.Coefficient > 0 {
			x := t.ref - t.lp
			m[loss.RefK1] -= x
			m[loss.RefK2] += x * x / 2
			k3 := math.Min(math.Exp(x)-x-1, 10)
			m[loss.RefK3] += k3
			if cfg.KL.Estimator == config.EstimatorK3Ratio {
				k3 *= math.Exp(t.lp - old(t))
			}
			kls += k3
		}
	}
	return gains, kls
}

// referenceGain is what one token adds to the objective.
func referenceGain(cfg config.Loss, a, lp, stopped, log, sequenceLog float64, m *[loss.NumMeasures]float64) float64 {
	low, high := 1-cfg.ClipLow, 1+cfg.ClipHigh
	if cfg.Objective == config.ObjectiveCISPO {
		r := math.Exp(stopped)
		if r < low {
			m[loss.ClipLow]++
		}
		if r > high {
			m[loss.ClipHigh]++
		}
		return clamp(r, low, high) * a * lp
	}
	r := math.Exp(log)
	if cfg.Objective == config.ObjectiveGSPO {
		r = math.Exp(sequenceLog)
	}
	gain := math.Min(r*a, clamp(r, low, high)*a)
	switch {
	case a < 0 && r < low:
		m[loss.ClipLow]++
	case a > 0 && r > high:
		m[loss.ClipHigh]++
	}
	if c := cfg.DualClip; c > 0 && a < 0 && r > c {
		m[loss.ClipDual]++
		gain = math.Max(gain, c*a)
	}
	return gain
}
