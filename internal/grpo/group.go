// Package grpo owns what happens to a group before training: it drops a group that
// teaches nothing, resamples the others and computes advantages. It is pure; device
// passes and padding belong to the trainer.
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

// Fate tells what became of a group.
type Fate string

// The fates of a group. Only a kept one is trained on.
const (
	FateKept       Fate = "kept"
	FateAllCorrect Fate = "all_correct" // dropped: equal rewards teach nothing
	FateAllWrong   Fate = "all_wrong"   // dropped, too
	FateEmpty      Fate = "empty"       // dropped: nothing but infrastructure failures
	FateTooSmall   Fate = "too_small"   // dropped with mode released: fewer than group_size have a reward
)

// Config is how groups become samples.
type Config struct {
	// GroupSize is the number of trajectories that a group keeps at most.
	GroupSize int
	// RoC chooses them.
	RoC RoC
	// Estimator names the estimator of advantages; "" is DefaultEstimator.
	Estimator string
	// K is the k of PassAtK.
	K int
	// Penalty counts for advantages alone; nil is none.
	Penalty Penalty
	// Seed is the root of the draws of RoC.
	Seed uint64
}

// Built is the result of BuildGroup.
type Built struct {
	Fate Fate
	// Kept are the trajectories to train on, ordered by Rollout, and Samples what the
	// trainer gets of each. Both are empty unless Fate is FateKept.
	Kept    []rl.Trajectory
	Samples []rl.Sample
	// Moments sums up the advantages where the estimator whitens those of the batch; nil
	// otherwise.
	Moments *Moments
}

// BuildGroup drops the group of a problem when its rewards are uniform. Otherwise it
// resamples the group and gives each kept trajectory its advantage. An error names a
// record that must not be trained on, or an unknown estimator.
func BuildGroup(g rl.Group, cfg Config) (Built, error) {
	estimator, err := estimatorByName(cfg.Estimator)
	if err == nil {
		err = check(g)
	}
	if err != nil {
		return Built{}, err
	}
	scored := slices.DeleteFunc(slices.Clone(g.Trajectories), func(t rl.Trajectory) bool {
		return t.Excluded()
	})
	switch {
	case len(scored) == 0:
		return Built{Fate: FateEmpty}, nil
	case uniform(scored) && positive(&scored[0]):
		return Built{Fate: FateAllCorrect}, nil
	case uniform(scored):
		return Built{Fate: FateAllWrong}, nil
	case cfg.RoC.Enabled && cfg.RoC.Mode == ModeReleased && len(scored) < cfg.GroupSize:
		return Built{Fate: FateTooSmall}, nil
	}
	out := Built{Fate: FateKept, Kept: Resample(scored, cfg.GroupSize, cfg.RoC, cfg.Seed)}
	advantages := estimator.advantages(penalized(out.Kept, cfg.Penalty), cfg.K)
	for i := range out.Kept {
		out.Samples = append(out.Samples, sample(&out.Kept[i], advantages[i]))
	}
	if estimator.Whitens {
		out.Moments = &Moments{}
		for i := range out.Samples {
			out.Moments.add(advantages[i], out.Samples[i].LossTokens())
		}
	}
	return out, nil
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
