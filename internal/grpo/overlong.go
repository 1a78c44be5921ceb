package grpo

import "temper/internal/rl"

// Penalty returns what to subtract from the reward of a trajectory before advantages are
// computed; at least 0.
type Penalty func(*rl.Trajectory) float64

// Overlong returns the soft penalty for long responses (arXiv 2503.14476, equation 13): 0 up
// to limit - buffer tokens, then linear to 1 at the limit. Tokens of tool results count, as
// they do for the limit.
func Overlong(limit, buffer int) Penalty {
	return func(t *rl.Trajectory) float64 {
		over := t.ResponseTokens() - (limit - buffer)
		return min(1, max(0, float64(over)/float64(buffer)))
	}
}

// penalized returns the trajectories with their penalties subtracted from the rewards.
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
