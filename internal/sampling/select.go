package sampling

import (
	"context"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/dataset"
	"temper/internal/rl"
	"temper/internal/run"
)

// SelectInput asks for the problems of a step.
type SelectInput struct {
	Run   run.Ref `json:"run"`
	Stage int     `json:"stage"`
	Step  int     `json:"step"`
	// StageStep counts the step within its stage, from 1.
	StageStep int `json:"stage_step"`
}

// SelectProblems names the problems of a step: the stage's problems less the
// filtered ones, each exactly once an epoch, in an order drawn from the seed.
func SelectProblems(ctx context.Context, store blob.Store, in SelectInput) ([]string, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	cfg, err := run.ReadConfig(ctx, store, in.Run)
	if err != nil {
		return nil, err
	}
	problems, err := run.ReadProblems(ctx, store, layout.TrainProblems(in.Stage))
	if err != nil {
		return nil, err
	}
	filter, _, err := artifact.Lookup[run.StoredFilter](ctx, store, layout.Filter(in.Stage))
	if err != nil {
		return nil, err
	}
	removed := make(map[string]bool, len(filter.RemovedIDs))
	for _, id := range filter.RemovedIDs {
		removed[id] = true
	}
	ledger, err := dataset.NewLedger(rl.Seed(cfg.Seed, "ledger", uint64(in.Stage)), problems, cfg.RL.ProblemsPerStep, removed)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, p := range ledger.Step(in.StageStep - 1) {
		ids = append(ids, p.ID)
	}
	return ids, nil
}
