// Package grpo owns what happens to groups before training: it drops groups that
// teach nothing, resamples the others and computes advantages. It is pure; device
// passes and padding belong to the trainer.
//
// Invariant: a trajectory that the infrastructure lost (StopInfraError) is in no
// baseline and no batch, and results do not depend on the order in which groups or
// trajectories arrive.
package grpo

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"temper/internal/rl"
)

// Stats counts what BuildBatch did.
type Stats struct {
	Groups            int `json:"groups"`
	DroppedAllWrong   int `json:"dropped_all_wrong"`
	DroppedAllCorrect int `json:"dropped_all_correct"`
	DroppedEmpty      int `json:"dropped_empty"` // all trajectories lost to the infrastructure
	ExcludedInfra     int `json:"excluded_infra"`
	// KeptUniform counts groups whose kept trajectories all have the same reward, and
	// so advantage 0.
	KeptUniform int `json:"kept_uniform"`
	Kept        int `json:"kept"`
	KeptCorrect int `json:"kept_correct"`
	// CorrectBefore and CorrectAfter are the quality of correct trajectories of the
	// groups that were not dropped, before and after resampling.
	CorrectBefore Quality `json:"correct_before"`
	CorrectAfter  Quality `json:"correct_after"`
}

// Quality is the mean quality of some trajectories.
type Quality struct {
	Trajectories      int     `json:"trajectories"`
	ToolCalls         int     `json:"tool_calls"`
	ToolErrorsFrac    float64 `json:"tool_errors_frac"` // failed calls / calls; 0 without calls
	MeanToolErrorRate float64 `json:"mean_tool_error_rate"`
	MeanFormatPenalty float64 `json:"mean_format_penalty"`
	failed            int
}

func (q *Quality) add(t *rl.Trajectory) {
	calls, failed := t.ToolCounts()
	toolErrorRate, formatPenalty := Penalties(t)
	q.Trajectories++
	q.ToolCalls += calls
	q.failed += failed
	n := float64(q.Trajectories)
	q.MeanToolErrorRate += (toolErrorRate - q.MeanToolErrorRate) / n
	q.MeanFormatPenalty += (formatPenalty - q.MeanFormatPenalty) / n
	if q.ToolCalls > 0 {
		q.ToolErrorsFrac = float64(q.failed) / float64(q.ToolCalls)
	}
}

// DropUniform removes trajectories that the infrastructure lost, and then the groups
// whose rewards are all equal. It adds to stats what it removed.
func DropUniform(groups []rl.Group, stats *Stats) []rl.Group {
	var kept []rl.Group
	for _, g := range groups {
		scored := slices.DeleteFunc(slices.Clone(g.Trajectories), func(t rl.Trajectory) bool {
			return t.StopReason == rl.StopInfraError
		})
		stats.Groups++
		stats.ExcludedInfra += len(g.Trajectories) - len(scored)
		switch {
		case len(scored) == 0:
			stats.DroppedEmpty++
		case !uniform(scored):
			kept = append(kept, rl.Group{Problem: g.Problem, Trajectories: scored})
		case positive(&scored[0]):
			stats.DroppedAllCorrect++
		default:
			stats.DroppedAllWrong++
		}
	}
	return kept
}

// BuildBatch drops uniform groups, resamples the others to groupSize and gives each
// kept trajectory its advantage. Samples are ordered by problem id and Rollout. The
// batch is empty when no group is left. An error names a record that must not be
// trained on.
func BuildBatch(step int, groups []rl.Group, groupSize int, roc RoC, seed uint64) (rl.Batch, Stats, error) {
	var stats Stats
	batch := rl.Batch{Step: step}
	if err := check(groups); err != nil {
		return batch, stats, fmt.Errorf("build batch step %d: %w", step, err)
	}
	groups = slices.SortedFunc(slices.Values(groups), func(a, b rl.Group) int { return cmp.Compare(a.Problem.ID, b.Problem.ID) })
	for _, g := range DropUniform(groups, &stats) {
		kept := Resample(g.Trajectories, groupSize, roc, seed)
		stats.count(g.Trajectories, kept)
		advantages := Advantages(kept)
		for i := range kept {
			batch.Samples = append(batch.Samples, sample(&kept[i], advantages[i]))
		}
	}
	return batch, stats, nil
}

func (s *Stats) count(before, after []rl.Trajectory) {
	for i := range before {
		if positive(&before[i]) {
			s.CorrectBefore.add(&before[i])
		}
	}
	for i := range after {
		if positive(&after[i]) {
			s.CorrectAfter.add(&after[i])
			s.KeptCorrect++
		}
	}
	s.Kept += len(after)
	if uniform(after) {
		s.KeptUniform++
	}
}

func sample(t *rl.Trajectory, advantage float32) rl.Sample {
	return rl.Sample{
		ProblemID: t.ProblemID, Rollout: t.Rollout, Tokens: t.Tokens, LossMask: t.LossMask,
		RolloutLogprobs: t.RolloutLogprobs, Advantage: advantage, Truncated: t.StopReason == rl.StopMaxTokens,
	}
}

// check rejects records that are broken, unscored or given twice.
func check(groups []rl.Group) error {
	type key struct {
		problem string
		rollout int
	}
	seen := map[key]bool{}
	for _, g := range groups {
		for i := range g.Trajectories {
			t := &g.Trajectories[i]
			k := key{t.ProblemID, t.Rollout}
			switch err := t.Validate(); {
			case err != nil:
				return err
			case t.ProblemID != g.Problem.ID:
				return fmt.Errorf("trajectory %s/%d is in group %s", t.ProblemID, t.Rollout, g.Problem.ID)
			case seen[k]:
				return fmt.Errorf("trajectory %s/%d is given twice", t.ProblemID, t.Rollout)
			case t.StopReason == "":
				return fmt.Errorf("trajectory %s/%d has no stop reason: it was never scored", t.ProblemID, t.Rollout)
			case math.IsNaN(t.Reward) || math.IsInf(t.Reward, 0):
				return fmt.Errorf("trajectory %s/%d has reward %v", t.ProblemID, t.Rollout, t.Reward)
			}
			seen[k] = true
		}
	}
	return nil
}
