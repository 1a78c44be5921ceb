package sampling

import (
	"context"
	"slices"
	"time"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
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
	planner, ok := engine.(inference.Recaller)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recallPatience)
	defer cancel()
	planner.Recall(r.endedBefore(ctx, loaded, step))
}

// endedBefore returns the lengths of stored trajectories, oldest step first.
func (r *Service) endedBefore(ctx context.Context, loaded *run.Loaded, step int) []inference.Ended {
	keys := r.newestGroups(ctx, loaded, step)
	read := make([]inference.Ended, len(keys))
	// A store that fails ends the reading; what was read by then is told.
	_ = artifact.Each(ctx, len(keys), func(ctx context.Context, i int) error {
		group, err := run.ReadTrajectories(ctx, r.Store, keys[i])
		if blob.IsDamage(err) {
			return nil
		}
		read[len(keys)-1-i] = endedOf(loaded, group)
		return err
	})
	return slices.DeleteFunc(read, func(e inference.Ended) bool { return len(e.Turns) == 0 })
}

// newestGroups are the keys of the groups of the newest steps before one, the newest first.
func (r *Service) newestGroups(ctx context.Context, loaded *run.Loaded, step int) []string {
	var keys []string
	found, size := 0, int64(0)
	for s := step - 1; s >= max(1, step-recallLookBack) && found < recallSteps; s-- {
		infos, _, err := r.Store.ListFolder(ctx, loaded.Layout.Step(s).Groups())
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
	return keys
}

// endedOf is how long the trajectories of a group became.
func endedOf(loaded *run.Loaded, group []rl.Trajectory) inference.Ended {
	var out inference.Ended
	for i := range group {
		t := &group[i]
		stages := loaded.Config.At(t.Step).Stages
		if t.Excluded() || t.Stage < 1 || t.Stage > len(stages) {
			continue
		}
		out.Run, out.Problem, out.Stage, out.Limit = loaded.Ref.RunID, t.ProblemID, t.Stage, stages[t.Stage-1].MaxResponseTokens
		var turns []int
		for _, turn := range t.Turns {
			turns = append(turns, turn.End-t.PromptTokens)
		}
		out.Turns = append(out.Turns, turns)
	}
	return out
}
