package rolloutbench

import (
	"context"

	"temper/internal/artifact"
	"temper/internal/history"
	"temper/internal/rl"
)

// Census counts the trajectories of the step against the plan.
type Census struct {
	Lost    int `json:"lost"`
	Doubled int `json:"doubled"`
	// Needed are the sampled tokens of what is stored.
	Needed int64 `json:"needed_tokens"`
}

// takeCensus reads all that is stored.
func takeCensus(ctx context.Context, p *Plan, layout artifact.Layout, ids []string) (Census, error) {
	var out Census
	r, err := history.Open(ctx, p.Store, layout.RunID)
	if err != nil {
		return out, err
	}
	for _, id := range ids {
		trajectories, err := r.Group(ctx, 1, id)
		if err != nil {
			return out, err
		}
		had := make(map[int]int, p.Rollouts)
		for i := range trajectories {
			if t := &trajectories[i]; t.ProblemID == id && t.StopReason != rl.StopInfraError {
				had[t.Rollout]++
				for _, turn := range t.Turns {
					out.Needed += int64(turn.End - turn.Start)
				}
			}
		}
		for i := range p.Rollouts {
			switch n := had[i]; {
			case n == 0:
				out.Lost++
			case n > 1:
				out.Doubled += n - 1
			}
		}
	}
	return out, nil
}
