package setup

import (
	"context"
	"errors"
	"fmt"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// AddAmendment stores the configuration with one more amendment under a separate name, so
// that the holder of an older Ref keeps the older configuration. A retry gives the same
// Ref. Errors: InvalidConfig, which changes nothing.
func AddAmendment(ctx context.Context, store blob.Store, in run.AmendInput) (run.Amended, error) {
	cfg, err := run.ReadConfig(ctx, store, in.Run)
	if err != nil {
		return run.Amended{}, err
	}
	was := cfg.At(in.Amendment.FromStep)
	before := run.PlanOf(in.Run.RunID, cfg.Newest())
	cfg.Amendments = append(cfg.Amendments, in.Amendment)
	if err := cfg.Validate(); err != nil {
		return run.Amended{}, err
	}
	after := run.PlanOf(in.Run.RunID, cfg.Newest())
	if err := errors.Join(checkPlan(before, after, in.Amendment.FromStep), checkRoom(ctx, store, in.Run, cfg)); err != nil {
		return run.Amended{}, err
	}
	data, err := cfg.YAML()
	if err != nil {
		return run.Amended{}, err
	}
	layout := artifact.Layout{RunID: in.Run.RunID}
	ref := blob.RefOf("", data)
	ref.Key = layout.Config().Amended(len(cfg.Amendments), ref.SHA256)
	if _, err := blob.PutBytes(ctx, store, ref.Key, data, blob.Always); err != nil {
		return run.Amended{}, err
	}
	if _, err := blob.PutJSON(ctx, store, layout.Config().Newest(), ref, blob.Always); err != nil {
		return run.Amended{}, err
	}
	return run.Amended{
		Config: ref, Stages: after.Stages, CheckpointEvery: cfg.Newest().Checkpoint.EverySteps, Text: in.Amendment.String(),
		Warnings: config.Warnings(was, cfg.At(in.Amendment.FromStep)),
	}, nil
}

// checkPlan refuses a change of the plan that steps before from would see.
func checkPlan(before, after run.Plan, from int) error {
	var out config.Problems
	if most := before.NumSteps(); from > most && after.NumSteps() == most {
		out = append(out, config.Problem{Path: "from_step", Msg: fmt.Sprintf("is %d, but the run has %d steps: name an earlier one or leave it out", from, most)})
	}
	for i, old := range before.Stages {
		now := after.Stages[i]
		key := fmt.Sprintf("stages[%d].until.steps", old.Source()-1)
		switch {
		case old.Steps == now.Steps:
		case now.FirstStep+now.Steps-1 < from && old.FirstStep < from:
			out = append(out, config.Problem{Path: key, Msg: fmt.Sprintf(
				"is %d, which ends stage %s before step %d: end it by skip_stage, or run it again by repeat_stage", now.Steps, old.Name, from)})
		case old.FirstStep+old.Steps <= from-1:
			out = append(out, config.Problem{Path: key, Msg: fmt.Sprintf("is of stage %s, which is over by step %d: run it again by repeat_stage", old.Name, from)})
		}
	}
	if len(out) > 0 {
		return out
	}
	return nil
}

// checkRoom refuses response limits that do not leave a prompt its room.
func checkRoom(ctx context.Context, store blob.Store, ref run.Ref, cfg config.Run) error {
	grown := map[int]config.Stage{}
	newest := cfg.Newest()
	for i, s := range newest.Stages {
		if s.MaxResponseTokens > cfg.Stages[i].MaxResponseTokens {
			grown[i+1] = s
		}
	}
	if len(grown) == 0 {
		return nil
	}
	rc, err := run.Load(ctx, store, ref)
	if err != nil {
		return err
	}
	for index, s := range grown {
		for _, key := range []string{rc.Layout.Stage(index).Train(), rc.Layout.Stage(index).HeldOut()} {
			problems, err := run.ReadProblems(ctx, store, key)
			if err != nil {
				return err
			}
			if err := checkLengths(rc.Format, problems, newest, s); err != nil {
				return fmt.Errorf("stages[%d].max_response_tokens: %w", index-1, err)
			}
		}
	}
	return nil
}
