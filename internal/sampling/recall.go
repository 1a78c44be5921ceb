package sampling

import (
	"context"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/policy"
	"temper/internal/run"
)

// Bounds of what an engine that plans is told at its start: the newest steps before the one
// that it begins with.
const (
	recallSteps    = 2
	recallLookBack = 8 // steps that may have been deleted or dropped
	recallBytes    = 64 << 20
	recallPatience = 10 * time.Second
)

// recall tells an engine that plans how long the trajectories of the last steps became. It
// only helps the forecasts: what cannot be read in time is left out.
func (r *Service) recall(ctx context.Context, engine Engine, loaded *run.Loaded, step int) {
	planner, ok := engine.(policy.Recaller)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recallPatience)
	defer cancel()
	planner.Recall(r.endedBefore(ctx, loaded, step))
}

// endedBefore reads how long stored trajectories became, those of the oldest step first.
func (r *Service) endedBefore(ctx context.Context, loaded *run.Loaded, step int) []policy.Ended {
	var keys []string
	found, size := 0, int64(0)
	for s := step - 1; s >= max(1, step-recallLookBack) && found < recallSteps; s-- {
		infos, _, err := r.Store.ListFolder(ctx, loaded.Layout.Groups(s))
		if err != nil {
			return nil
		}
		if len(infos) > 0 {
			found++
		}
		for _, info := range infos {
			if size += info.Size; size <= recallBytes {
				keys = append(keys, info.Key)
			}
		}
	}
	out := make([]policy.Ended, len(keys))
	// A store that fails ends the reading; what was read by then is told.
	_ = artifact.Each(ctx, len(keys), func(ctx context.Context, i int) error {
		group, err := run.ReadTrajectories(ctx, r.Store, keys[i])
		if blob.IsDamage(err) || err == nil && len(group) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		first := &group[0]
		stages := loaded.Config.At(first.Step).Stages
		if first.Stage < 1 || first.Stage > len(stages) {
			return nil
		}
		ended := policy.Ended{Run: loaded.Ref.RunID, Problem: first.ProblemID, Stage: first.Stage, Limit: stages[first.Stage-1].MaxResponseTokens}
		for j := range group {
			if group[j].Excluded() {
				continue
			}
			var turns []int
			for _, turn := range group[j].Turns {
				turns = append(turns, turn.End-group[j].PromptTokens)
			}
			ended.Turns = append(ended.Turns, turns)
		}
		out[len(keys)-1-i] = ended
		return nil
	})
	var told []policy.Ended
	for _, e := range out {
		if len(e.Turns) > 0 {
			told = append(told, e)
		}
	}
	return told
}
