package grpo

import "temper/internal/rl"

// Penalty is what a trajectory loses of its reward before advantages are taken; at
// least 0.
type Penalty func(*rl.Trajectory) float64

// Overlong is the soft punishment of long responses (arXiv 2503.14476, equation 13): 0
// up to limit - buffer tokens, and from there in a straight line to 1 at the limit.
// Tokens of tool results count, as they do for the limit.
func Overlong(limit, buffer int) Penalty {
	return func(t *rl.Trajectory) float64 {
		over := t.ResponseTokens() - (limit - buffer)
		return min(1, max(0, float64(over)/float64(buffer)))
	}
}

// penalized are trajectories whose rewards have lost their penalty.
func penalized(trajectories []rl.Trajectory, penalty Penalty) []rl.Trajectory {
	if penalty == nil {
		return trajectories
	}
	out := make([]rl.Trajectory, len(trajectories))
	for i := range trajectories {
		out[i] = trajectories[i]
		out[i].Reward -= penalty(&trajectories[i])
	}
	return out
}
