package recoverybench

import "temper/internal/rl"

// Settle decides what becomes of a group: its attempts at recovery, the sampled
// tokens that are lost, and how often each trajectory gets fresh draws.
func Settle(how Recovery, seed uint64, chance float64, ts []rl.Trajectory) (rounds, lost int, fresh []int) {
	g := newGroup(len(ts))
	g.trajectories = ts
	fresh = make([]int, len(ts))
	for rounds = 1; !g.settle(how, hazard{seed: seed, chance: chance}, func(i int) { fresh[i]++ }); rounds++ {
	}
	return rounds, g.lost, fresh
}

// Lifetime is the number of tokens that an attempt lives for.
func Lifetime(seed uint64, chance float64, t *rl.Trajectory, attempt int) int {
	return hazard{seed: seed, chance: chance}.lifetime(t, attempt)
}
