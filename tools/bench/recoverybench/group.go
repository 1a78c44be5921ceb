package recoverybench

import (
	"slices"

	"temper/internal/blob"
	"temper/internal/rl"
)

// sampled is what a step has sampled, and what it lost.
type sampled struct {
	problems []string
	groups   map[string]*group
	shards   []blob.Ref
}

// group is the trajectories of a problem and what happened until they were stored.
type group struct {
	trajectories []rl.Trajectory
	attempts     []int // of each trajectory
	done         []bool
	stored       bool
	lost         int // sampled tokens
	interrupted  int // trajectories, each time
}

func newGroup(n int) *group {
	return &group{attempts: make([]int, n), done: make([]bool, n)}
}

// settle makes up for the interruptions of a group. It returns true when the group
// stands, or calls fresh for each trajectory whose draws are to be made anew.
func (g *group) settle(how Recovery, h hazard, fresh func(i int)) bool {
	whole := how != FreshRollouts
	for {
		t := h.attempt(g.trajectories, g.attempts, g.done, whole)
		g.lost += t.lost
		for i, hit := range t.interrupted {
			g.take(i, hit, whole && t.any)
			if (hit || whole && t.any) && how != SameDraws {
				fresh(i)
			}
		}
		if !t.any || how != SameDraws {
			return !t.any
		}
		// The same draws give the same trajectories: there is nothing to sample
		// again for, and only chance decides how often the group is begun.
	}
}

// take notes what became of an attempt at a trajectory.
func (g *group) take(i int, interrupted, withGroup bool) {
	if interrupted {
		g.interrupted++
	}
	if interrupted || withGroup {
		g.attempts[i]++
	} else {
		g.done[i] = true
	}
}

// tally is what a recovery has made of a run.
type tally struct {
	lengths     []int // sampled tokens of each trajectory
	reward      float64
	kept, lost  int // sampled tokens
	interrupted int
}

func (t *tally) add(s *sampled) {
	for _, id := range s.problems {
		g := s.groups[id]
		for i := range g.trajectories {
			n := sampledTokens(&g.trajectories[i])
			t.lengths = append(t.lengths, n)
			t.kept += n
			t.reward += g.trajectories[i].Reward
		}
		t.lost += g.lost
		t.interrupted += g.interrupted
	}
}

// result sums a tally up.
func (t *tally) result() Result {
	n := float64(len(t.lengths))
	if n == 0 {
		return Result{}
	}
	slices.Sort(t.lengths)
	at := func(q float64) int { return t.lengths[min(len(t.lengths)-1, int(q*n))] }
	r := Result{
		Trajectories: len(t.lengths), Reward: t.reward / n, MeanTokens: float64(t.kept) / n,
		Median: at(0.5), P90: at(0.9), P99: at(0.99), Longest: t.lengths[len(t.lengths)-1],
		LostTokens: float64(t.lost) / float64(t.kept), Interrupted: float64(t.interrupted) / n,
		lengths: t.lengths,
	}
	var sum float64
	for _, l := range t.lengths {
		d := float64(l) - r.MeanTokens
		sum += d * d
	}
	r.variance = sum / n
	return r
}
