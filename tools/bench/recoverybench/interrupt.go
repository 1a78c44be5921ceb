package recoverybench

import (
	"math"

	"temper/internal/rl"
)

// Recovery is how a service makes up for interrupted trajectories.
type Recovery string

// The ways of recovery that are compared.
const (
	// Undisturbed is a run that nothing interrupts.
	Undisturbed Recovery = "undisturbed"
	// SameDraws samples a group that is not stored again, by the seeds it had. This
	// is what Temper does.
	SameDraws Recovery = "same draws"
	// FreshRollouts keeps the finished trajectories of a group and draws the
	// interrupted ones anew.
	FreshRollouts Recovery = "fresh rollouts"
	// FreshGroups draws a group anew in which any trajectory was interrupted.
	FreshGroups Recovery = "fresh groups"
)

// hazard decides when trajectories are interrupted: each sampled token is the last
// one with the same probability, so that a trajectory twice as long is in danger
// twice as long.
type hazard struct {
	seed   uint64
	chance float64 // for each token
}

// lifetime is the number of tokens that an attempt at a trajectory lives for.
func (h hazard) lifetime(t *rl.Trajectory, attempt int) int {
	if h.chance <= 0 {
		return math.MaxInt
	}
	seed := rl.Seed(h.seed, "interruption", rl.Hash(t.ProblemID), uint64(t.Step), uint64(t.Rollout))
	u := rl.Uniform(seed, attempt)
	// The geometric distribution by its inverse; 1-u is never 0.
	n := math.Log(1-float64(u)) / math.Log(1-h.chance)
	if n > math.MaxInt32 {
		return math.MaxInt
	}
	return int(n)
}

// sampledTokens counts what the policy itself wrote.
func sampledTokens(t *rl.Trajectory) int {
	n := 0
	for _, sampled := range t.LossMask {
		if sampled {
			n++
		}
	}
	return n
}

// trial is one attempt at a group: which trajectories were interrupted, and the
// sampled tokens that are lost with them.
type trial struct {
	interrupted []bool
	any         bool
	lost        int
}

// attempt decides what becomes of an attempt at a group. Its trajectories are
// decoded side by side, one token of each at a time. With whole, the first
// interruption ends the group; otherwise each trajectory ends by itself, and done
// marks those that an earlier attempt has finished.
func (h hazard) attempt(ts []rl.Trajectory, attempts []int, done []bool, whole bool) trial {
	out := trial{interrupted: make([]bool, len(ts))}
	first := math.MaxInt
	lengths := make([]int, len(ts))
	for i := range ts {
		lengths[i] = sampledTokens(&ts[i])
		if done[i] {
			continue
		}
		life := h.lifetime(&ts[i], attempts[i])
		if life >= lengths[i] {
			continue
		}
		out.interrupted[i], out.any = true, true
		first = min(first, life)
		if !whole {
			out.lost += life
		}
	}
	if whole && out.any {
		for _, n := range lengths {
			out.lost += min(n, first)
		}
	}
	return out
}
