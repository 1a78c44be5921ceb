// Package grpo owns what happens to a group before training: it drops the group if
// it teaches nothing, resamples it otherwise and computes advantages. It is pure;
// device passes and padding belong to the trainer.
//
// Invariant: a trajectory that the infrastructure lost (StopInfraError) is in no
// baseline and no batch, and results do not depend on the order in which
// trajectories arrive.
package grpo

import (
	"fmt"
	"math"
	"slices"

	"temper/internal/rl"
)

// Fate is what became of a group.
type Fate string

// The fates of a group. Only a kept one is trained on.
const (
	FateKept       Fate = "kept"
	FateAllCorrect Fate = "all_correct" // dropped: equal rewards teach nothing
	FateAllWrong   Fate = "all_wrong"   // dropped, too
	FateEmpty      Fate = "empty"       // dropped: nothing but infrastructure failures
	FateTooSmall   Fate = "too_small"   // dropped with mode released: fewer than group_size have a reward
)

// BuildGroup drops the group of a problem when its rewards are uniform, resamples
// it to groupSize otherwise, and gives each kept trajectory its advantage. Kept
// trajectories and their samples are ordered by Rollout; both are empty for a
// dropped group. A penalty, nil for none, counts for advantages alone. An error names a
// record that must not be trained on.
func BuildGroup(g rl.Group, groupSize int, roc RoC, seed uint64, penalty Penalty) (kept []rl.Trajectory, samples []rl.Sample, fate Fate, err error) {
	if err := check(g); err != nil {
		return nil, nil, "", err
	}
	scored := slices.DeleteFunc(slices.Clone(g.Trajectories), func(t rl.Trajectory) bool {
		return t.Excluded()
	})
	switch {
	case len(scored) == 0:
		return nil, nil, FateEmpty, nil
	case uniform(scored) && positive(&scored[0]):
		return nil, nil, FateAllCorrect, nil
	case uniform(scored):
		return nil, nil, FateAllWrong, nil
	case roc.Enabled && roc.Mode == ModeReleased && len(scored) < groupSize:
		return nil, nil, FateTooSmall, nil
	}
	kept = Resample(scored, groupSize, roc, seed)
	advantages := Advantages(penalized(kept, penalty))
	for i := range kept {
		samples = append(samples, sample(&kept[i], advantages[i]))
	}
	return kept, samples, FateKept, nil
}

func sample(t *rl.Trajectory, advantage float32) rl.Sample {
	return rl.Sample{
		ProblemID: t.ProblemID, Rollout: t.Rollout, Tokens: t.Tokens, LossMask: t.LossMask,
		RolloutLogprobs: t.RolloutLogprobs, Advantage: advantage, Truncated: t.StopReason == rl.StopMaxTokens,
	}
}

// check rejects records that are broken, unscored or given twice.
func check(g rl.Group) error {
	seen := map[int]bool{}
	for i := range g.Trajectories {
		t := &g.Trajectories[i]
		switch err := t.Validate(); {
		case err != nil:
			return err
		case t.ProblemID != g.Problem.ID:
			return fmt.Errorf("trajectory %s/%d is in group %s", t.ProblemID, t.Rollout, g.Problem.ID)
		case seen[t.Rollout]:
			return fmt.Errorf("trajectory %s/%d is given twice", t.ProblemID, t.Rollout)
		case t.StopReason == "":
			return fmt.Errorf("trajectory %s/%d has no stop reason: it was never scored", t.ProblemID, t.Rollout)
		case math.IsNaN(t.Reward) || math.IsInf(t.Reward, 0):
			return fmt.Errorf("trajectory %s/%d has reward %v", t.ProblemID, t.Rollout, t.Reward)
		}
		seen[t.Rollout] = true
	}
	return nil
}
