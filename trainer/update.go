package trainer

import (
	"context"
	"errors"

	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/device"
	"temper/trainer/loss"
	"temper/trainer/optimizer"
	"temper/trainer/packing"
	"temper/trainer/passes"
	"temper/trainer/passes/inputs"
)

// update makes one optimizer update on the rows of a minibatch.
func (s *step) update(ctx context.Context, rows []*packing.Row) (meter, error) {
	m := meter{updates: 1, sequences: len(rows), groups: packing.MarkGroups(rows)}
	m.tokens, m.lossTokens = packing.Count(rows)
	micros := s.plan.Microbatches(rows)
	numbers := optimizer.Numbers(s.optimizer, s.lr, s.state.Counters().Updates+1)
	var err error
	if len(micros) == 1 && !micros[0].Fixed { // a fixed shape has one program for all minibatches
		err = s.updateAtOnce(ctx, micros[0], numbers, &m)
	} else {
		err = s.updateInParts(ctx, micros, numbers, &m)
	}
	if errors.Is(err, ErrDiverged) {
		err = s.divergedError(ctx, micros, m)
	}
	if err != nil {
		return meter{}, err
	}
	if optimizer.Skips(s.optimizer, m.norm) {
		m.updates, m.skipped = 0, 1
		return m, nil
	}
	s.state.CountUpdate()
	return m, nil
}

// updateAtOnce makes the update in one device call.
func (s *step) updateAtOnce(ctx context.Context, mb packing.Microbatch, numbers *tensors.Tensor, m *meter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	out, err := s.passes.Call(s.program(passes.Update), mb.Shape, append(s.inputs(mb, m), numbers)...)
	if err != nil {
		return err
	}
	if err := m.addSums(out[0]); err != nil {
		return err
	}
	return m.setNorm(out[1])
}

// updateInParts adds the gradients of the microbatches and applies the sum. The denominator is
// the minibatch's, so the sum is its gradient.
func (s *step) updateInParts(ctx context.Context, micros []packing.Microbatch, numbers *tensors.Tensor, m *meter) error {
	var grads []device.Value
	defer func() { device.Release(grads...) }()
	operands := func(mb packing.Microbatch) []any { return s.inputs(mb, m) }
	err := s.passes.Each(ctx, s.program(passes.Gradient), micros, operands, func(_ packing.Microbatch, out []device.Value) error {
		if err := m.addSums(out[0]); err != nil {
			device.Release(out[1:]...)
			return err
		}
		if grads == nil {
			grads = out[1:]
			return nil
		}
		sum, err := s.passes.Donate(passes.Program{Kind: passes.Add}, nil, append(grads, out[1:]...))
		grads = sum
		return err
	})
	if err != nil {
		return err
	}
	if !m.finite() {
		return ErrDiverged
	}
	out, err := s.passes.Donate(passes.Program{Kind: passes.Apply}, []any{numbers}, grads)
	grads = nil
	if err != nil {
		return err
	}
	return m.setNorm(out[0])
}

// gradient makes the pass over a microbatch of the minibatch that m counts. It returns the
// measures, and the microbatch's part of the gradient of each trained tensor.
func (s *step) gradient(mb packing.Microbatch, m *meter) ([]device.Value, error) {
	return s.passes.Call(s.program(passes.Gradient), mb.Shape, s.inputs(mb, m)...)
}

// inputs returns the inputs of the pass over a microbatch of the minibatch that m counts.
func (s *step) inputs(mb packing.Microbatch, m *meter) []any {
	if s.objective == passes.Supervised {
		return inputs.Supervised(mb, m.lossTokens)
	}
	return inputs.Policy(mb, loss.Denominator(s.loss, loss.Counts{Tokens: m.lossTokens, Sequences: m.sequences, Groups: m.groups}), inputs.ExtrasOf(s.loss))
}
