package schedulerbench

import (
	"context"
	"fmt"

	"temper/internal/history"
	"temper/internal/rl"
)

// ReadStep reads the rollouts of a step of a run: its turns as they were, with tools
// that take so many seconds.
func ReadStep(ctx context.Context, r *history.Run, step int, toolSeconds float64) ([]Rollout, error) {
	problems, err := r.Problems(ctx, step)
	if err != nil {
		return nil, fmt.Errorf("step %d: %w", step, err)
	}
	var out []Rollout
	longest := 0
	for _, p := range problems {
		trajectories, err := r.Group(ctx, step, p)
		if err != nil {
			return nil, fmt.Errorf("step %d, problem %q: %w", step, p, err)
		}
		for i := range trajectories {
			t := &trajectories[i]
			if len(t.Turns) == 0 {
				continue // the infrastructure failed before its first turn
			}
			out = append(out, fromTrajectory(t, toolSeconds))
			longest = max(longest, out[len(out)-1].Length())
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("step %d of run %q has no trajectories", step, r.ID())
	}
	for i := range out {
		out[i].Limit = longest
	}
	return out, nil
}

func fromTrajectory(t *rl.Trajectory, toolSeconds float64) Rollout {
	out := Rollout{ID: fmt.Sprintf("%s/%d", t.ProblemID, t.Rollout), Problem: t.ProblemID, Prompt: t.PromptTokens}
	for i, turn := range t.Turns {
		out.Turns = append(out.Turns, turn.End-turn.Start)
		if i+1 < len(t.Turns) {
			out.Tools = append(out.Tools, Call{Seconds: toolSeconds, Tokens: t.Turns[i+1].Start - turn.End})
		}
	}
	return out
}
