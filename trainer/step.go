package trainer

import (
	"context"
	"errors"
	"log/slog"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer/model"
	"temper/trainer/optimizer"
	"temper/trainer/packing"
	"temper/trainer/passes"
)

// step makes the updates of one call of SFTStep or Update, all of them or none.
type step struct {
	passes    *passes.Passes
	state     *optimizer.State
	reference *optimizer.Reference
	scorer    scorer
	plan      packing.Plan
	log       *slog.Logger

	model     model.Config
	loss      config.Loss
	memory    passes.Memory
	objective passes.Objective
	optimizer config.Optimizer
	position  Position
	lr        float64 // at the position
}

// apply makes one update for each part into which deal divides the samples.
func (s *step) apply(ctx context.Context, samples []rl.Sample, deal func([]*packing.Row) [][]*packing.Row) (rl.TrainMetrics, error) {
	if !s.state.Ready() {
		return rl.TrainMetrics{}, ErrNoState
	}
	var err error
	if s.lr, err = optimizer.LearningRate(s.optimizer, s.position); err != nil {
		return rl.TrainMetrics{}, err
	}
	rows, err := packing.Rows(samples, limitsOf(s.model))
	if err != nil {
		return rl.TrainMetrics{}, err
	}
	if len(rows) == 0 {
		return rl.TrainMetrics{}, errors.New("no token is in the loss")
	}
	if rows = s.withoutOverlong(rows); len(rows) == 0 {
		s.state.SetSchedule(s.position.Step)
		return rl.TrainMetrics{LR: s.lr}, nil
	}
	parts := deal(rows)
	if err := s.memory.Check(s.microbatches(parts)); err != nil {
		return rl.TrainMetrics{}, err
	}
	if err := s.state.Tune(s.optimizer); err != nil {
		return rl.TrainMetrics{}, err
	}
	if err := s.compileAhead(ctx, len(parts) > 1); err != nil {
		return rl.TrainMetrics{}, err
	}
	return s.updateAll(ctx, parts)
}

// updateAll makes an update on each part. An error undoes all of them.
func (s *step) updateAll(ctx context.Context, parts [][]*packing.Row) (rl.TrainMetrics, error) {
	before, err := s.prepare(ctx, parts)
	if err != nil {
		return rl.TrainMetrics{}, err
	}
	defer before.Release()
	if err := s.annotate(ctx, parts); err != nil {
		return rl.TrainMetrics{}, err
	}
	total := meter{}
	for _, rows := range parts {
		m, err := s.update(ctx, rows)
		if err != nil {
			if lost := s.state.GoBack(before); lost != nil {
				err = errors.Join(err, lost)
			}
			return rl.TrainMetrics{}, err
		}
		total.addUpdate(m)
	}
	s.state.SetSchedule(s.position.Step)
	return total.metrics(s.lr), nil
}

// prepare adds the log-probabilities of the policy before the step to the rows of later
// updates, and makes the savepoint to which a failed update returns. The caller releases it.
func (s *step) prepare(ctx context.Context, parts [][]*packing.Row) (*optimizer.Savepoint, error) {
	if len(parts) == 1 {
		return &optimizer.Savepoint{}, nil
	}
	for _, rows := range parts[1:] { // the first update computes its own, see inputs.HasOld
		if s.loss.OldLogprobs == config.OldRollout {
			break
		}
		if err := s.scorer.score(ctx, s.program(passes.Score), rows, keepOld); err != nil {
			return nil, err
		}
	}
	return s.passes.Savepoint()
}

func (s *step) program(kind passes.Kind) passes.Program {
	return passes.Program{Objective: s.objective, Kind: kind}
}

// microbatches cuts the rows of each update into device passes.
func (s *step) microbatches(parts [][]*packing.Row) [][]packing.Microbatch {
	var out [][]packing.Microbatch
	for _, rows := range parts {
		out = append(out, s.plan.Microbatches(rows))
	}
	return out
}
