package grpo

import (
	"cmp"
	"math"
	"slices"

	"temper/internal/rl"
)

// Modes of Resample-on-Correct.
const (
	// ModePaper draws positives without replacement with probability inversely
	// proportional to their penalty, as arXiv 2508.20722 says.
	ModePaper = "paper"
	// ModeReleased keeps the positives with the lowest penalties and the first
	// negatives, counts penalties in the text, and drops groups that are too small, as
	// the released code does.
	ModeReleased = "released"
)

// RoC is Resample-on-Correct (arXiv 2508.20722, section 2.2.3): how the trajectories
// of a group that are trained on are chosen.
//
// It is the section rl.roc of a run's configuration, which checks it by the tags
// below. This package relies on that.
type RoC struct {
	// Enabled chooses by the quality of tool use. false keeps a uniform sample of
	// group_size instead, which is plain GRPO.
	Enabled bool `yaml:"enabled" json:"enabled"`
	// Mode is how correct trajectories are chosen: paper draws them with probabilities
	// inverse to their penalties, released takes those with the lowest penalties, as the
	// released code does. With released a call fails when its result has the word "error",
	// the first turn is none in p_format, and groups below group_size are dropped. A call
	// beyond rollout.max_calls_per_turn is an error with paper, and does not exist with
	// released. docs/decisions/0023-resample-on-correct.md lists what released does otherwise than the release still.
	Mode string `yaml:"mode" json:"mode" enum:"paper|released"`
	// Smoothing is the s in 1/(p+s), the weight of a trajectory with penalty p. The paper
	// states none.
	Smoothing float64 `yaml:"smoothing" json:"smoothing" range:"1e-06..1e+06"`
	// MinPositive is the number of correct trajectories that are kept at least, as far as
	// there are any. The paper states none, which is 0; the released code has 2.
	MinPositive int `yaml:"min_positive" json:"min_positive" range:"0.." unit:"trajectories"`
	// MinNegative is the same for wrong trajectories. Together with min_positive it is at
	// most group_size.
	MinNegative int `yaml:"min_negative" json:"min_negative" range:"0.." unit:"trajectories"`
}

// Resample returns the trajectories of a scored group that are kept, ordered by
// Rollout: groupSize of them, or all when there are not more. Trajectories with
// reward 1 are positives, the others negatives. Every draw is keyed by the
// trajectory's problem and Rollout, so the order of the input does not matter.
func Resample(trajectories []rl.Trajectory, groupSize int, cfg RoC, seed uint64) []rl.Trajectory {
	kept := slices.SortedFunc(slices.Values(trajectories), byRollout)
	if len(kept) <= groupSize {
		return kept
	}
	if !cfg.Enabled {
		kept = lowest(kept, groupSize, uniformKeys(kept, seed))
	} else {
		kept = resampleOnCorrect(kept, groupSize, cfg, seed)
	}
	slices.SortFunc(kept, byRollout)
	return kept
}

func byRollout(a, b rl.Trajectory) int { return cmp.Compare(a.Rollout, b.Rollout) }

// resampleOnCorrect picks from more than groupSize trajectories sorted by Rollout.
func resampleOnCorrect(sorted []rl.Trajectory, groupSize int, cfg RoC, seed uint64) []rl.Trajectory {
	var positives, negatives []rl.Trajectory
	for _, t := range sorted {
		if positive(&t) {
			positives = append(positives, t)
		} else {
			negatives = append(negatives, t)
		}
	}
	numNeg := keptNegatives(len(positives), len(negatives), groupSize, cfg)
	numPos := groupSize - numNeg
	if cfg.Mode == ModeReleased {
		return slices.Concat(lowest(positives, numPos, penaltyKeys(positives, cfg)), negatives[:numNeg])
	}
	return slices.Concat(
		lowest(positives, numPos, weightedKeys(positives, cfg, seed)),
		lowest(negatives, numNeg, uniformKeys(negatives, seed)))
}

func positive(t *rl.Trajectory) bool { return t.Reward > 0 }

// keptNegatives is the number of negatives among the groupSize trajectories kept of
// pos+neg. It is the proportional share, moved as little as the minima and the
// numbers there are demand.
func keptNegatives(pos, neg, groupSize int, cfg RoC) int {
	if cfg.Mode == ModeReleased {
		return releasedNegatives(pos, neg, groupSize, cfg)
	}
	share := math.Floor(float64(neg*groupSize) / float64(pos+neg))
	lowest := max(min(cfg.MinNegative, neg), groupSize-pos)
	highest := min(neg, groupSize-min(cfg.MinPositive, pos))
	return min(max(int(share), lowest), highest)
}

// releasedNegatives is the released code's arithmetic: both counts are rounded half to
// even, and a count that is at or below its minimum makes the other one the rest. Where
// the two do not add up to an odd groupSize, an assertion ends the run there; here the
// positives are the rest. Its last way out, a group kept whole because both counts are
// below their minima, is never taken: they are at least groupSize-1 together, and the
// minima at most groupSize.
func releasedNegatives(pos, neg, groupSize int, cfg RoC) int {
	share := func(n int) int { return int(math.RoundToEven(float64(n*groupSize) / float64(pos+neg))) }
	z, p := share(neg), share(pos)
	if few := min(cfg.MinNegative, neg); z <= few {
		z, p = few, groupSize-few
	}
	if few := min(cfg.MinPositive, pos); p <= few {
		z = groupSize - few
	}
	return min(max(z, groupSize-pos), neg)
}

// lowest returns the n trajectories with the lowest keys, in input order for
// equal keys.
func lowest(ts []rl.Trajectory, n int, keys []float64) []rl.Trajectory {
	order := make([]int, len(ts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
	kept := make([]rl.Trajectory, n)
	for i := range kept {
		kept[i] = ts[order[i]]
	}
	return kept
}

// uniformKeys gives every subset of a size the same chance to have the lowest keys.
func uniformKeys(ts []rl.Trajectory, seed uint64) []float64 {
	keys := make([]float64, len(ts))
	for i := range ts {
		keys[i] = draw(&ts[i], seed)
	}
	return keys
}

// weightedKeys draws each key from an exponential distribution whose rate is the weight
// of the trajectory. The lowest keys are then a sample without replacement with probabilities proportional
// to the rates (Efraimidis and Spirakis 2006).
func weightedKeys(ts []rl.Trajectory, cfg RoC, seed uint64) []float64 {
	keys := make([]float64, len(ts))
	for i := range ts {
		keys[i] = -math.Log1p(-draw(&ts[i], seed)) / cfg.Weight(cfg.Penalties(&ts[i]))
	}
	return keys
}

func penaltyKeys(ts []rl.Trajectory, cfg RoC) []float64 {
	keys := make([]float64, len(ts))
	for i := range ts {
		toolErrorRate, formatPenalty := cfg.Penalties(&ts[i])
		keys[i] = toolErrorRate + formatPenalty
	}
	return keys
}

// draw returns a number in [0, 1) that depends on the trajectory and the seed alone.
func draw(t *rl.Trajectory, seed uint64) float64 {
	return rl.Rand(rl.Seed(seed, "resample", rl.Hash(t.ProblemID), uint64(t.Rollout))).Float64()
}
