package grpo

import (
	"math"

	"temper/internal/rl"
)

// stdEpsilon keeps the division by a small deviation finite.
const stdEpsilon = 1e-6

// Advantages returns (r - mean)/(std + 1e-6) of the rewards of one group, with
// the unbiased deviation (n-1). Equal rewards, and a single one, give zeros.
func Advantages(trajectories []rl.Trajectory) []float32 {
	out := make([]float32, len(trajectories))
	if len(trajectories) < 2 {
		return out
	}
	n := float64(len(trajectories))
	mean, squares := 0.0, 0.0
	for i := range trajectories {
		mean += trajectories[i].Reward / n
	}
	for i := range trajectories {
		d := trajectories[i].Reward - mean
		squares += d * d
	}
	std := math.Sqrt(squares / (n - 1))
	if uniform(trajectories) {
		return out
	}
	for i := range trajectories {
		out[i] = float32((trajectories[i].Reward - mean) / (std + stdEpsilon))
	}
	return out
}

// uniform reports whether all rewards are equal.
func uniform(trajectories []rl.Trajectory) bool {
	for i := range trajectories {
		if trajectories[i].Reward != trajectories[0].Reward {
			return false
		}
	}
	return true
}
