package activities

import (
	"context"
	"errors"
	"fmt"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/config"
)

// AmendRun stores the configuration with one more amendment under a name of its
// own, so that who holds an older Ref goes on with what that says. A retry gives
// the same Ref. Errors: InvalidConfig, which changes nothing.
func (c *Control) AmendRun(ctx context.Context, in AmendRunInput) (AmendRunResult, error) {
	out, err := c.amendRun(ctx, in)
	return out, toTemporal(err)
}

func (c *Control) amendRun(ctx context.Context, in AmendRunInput) (AmendRunResult, error) {
	cfg, err := readConfig(ctx, c.Store, in.Run)
	if err != nil {
		return AmendRunResult{}, err
	}
	before := planOf(in.Run.RunID, cfg.Newest())
	cfg.Amendments = append(cfg.Amendments, in.Amendment)
	if err := cfg.Validate(); err != nil {
		return AmendRunResult{}, err
	}
	after := planOf(in.Run.RunID, cfg.Newest())
	if err := errors.Join(checkPlan(before, after, in.Amendment.FromStep), c.checkRoom(ctx, in.Run, cfg)); err != nil {
		return AmendRunResult{}, err
	}
	data, err := cfg.YAML()
	if err != nil {
		return AmendRunResult{}, err
	}
	layout := artifact.Layout{RunID: in.Run.RunID}
	ref := blob.RefOf("", data)
	ref.Key = layout.AmendedConfig(len(cfg.Amendments), ref.SHA256)
	if _, err := blob.PutBytes(ctx, c.Store, ref.Key, data, blob.Always); err != nil {
		return AmendRunResult{}, err
	}
	if _, err := blob.PutJSON(ctx, c.Store, layout.NewestConfig(), ref, blob.Always); err != nil {
		return AmendRunResult{}, err
	}
	return AmendRunResult{
		Config: ref, Stages: after.Stages, CheckpointEvery: cfg.Newest().Checkpoint.EverySteps, Text: in.Amendment.String(),
	}, nil
}

// checkPlan refuses a change of the plan that steps before from would see.
func checkPlan(before, after RunPlan, from int) error {
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
func (c *Control) checkRoom(ctx context.Context, run RunRef, cfg config.Run) error {
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
	rc, err := loadRun(ctx, c.Store, run)
	if err != nil {
		return err
	}
	p := preparation{layout: rc.layout, cfg: newest, format: rc.format}
	for index, s := range grown {
		for _, key := range []string{rc.layout.TrainProblems(index), rc.layout.HeldOutProblems(index)} {
			problems, err := readProblems(ctx, c.Store, key)
			if err != nil {
				return err
			}
			if err := p.checkLengths(problems, s); err != nil {
				return fmt.Errorf("stages[%d].max_response_tokens: %w", index-1, err)
			}
		}
	}
	return nil
}

// SaveCheckpoint saves the state after a step. One that is there stays.
func (t *Trainer) SaveCheckpoint(ctx context.Context, in SaveCheckpointInput) error {
	return toTemporal(t.work(ctx, func(ctx context.Context) error {
		s, err := t.open(ctx, in.Run)
		if err != nil {
			return err
		}
		if err := t.seek(ctx, s.cursor(in.Step)); err != nil {
			return err
		}
		return s.saveNow(ctx)
	}))
}
