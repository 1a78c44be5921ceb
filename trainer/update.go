package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/internal/config"
	"temper/internal/rl"
)

// UpdateOptions say how a batch becomes updates.
type UpdateOptions struct {
	Optimizer config.Optimizer
	Position  Position
	// NumMinibatches is the number of updates; 0 means 1.
	NumMinibatches int
}

// SFTStep makes one supervised update on the samples: the mean negative
// log-likelihood of the tokens in their LossMask. Advantages and rollout
// log-probabilities are ignored.
// Errors: ErrDiverged as a DivergedError, ErrTooLarge, ErrNoState, ctx.Err(),
// config.Problems, a GraphError, or one that names the sample.
func (t *Trainer) SFTStep(ctx context.Context, samples []rl.Sample, o config.Optimizer, p Position) (rl.TrainMetrics, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	metrics, err := t.step(ctx, objectiveSFT, samples, func(rows []*row) [][]*row { return [][]*row{rows} }, o, p)
	if err != nil {
		return rl.TrainMetrics{}, fmt.Errorf("sft step %d: %w", p.Step, err)
	}
	return metrics, nil
}

// Update makes the updates of one step on its batch by the clipped policy
// objective. With several minibatches the policy before the step is the old
// policy of all of them.
// Errors: those of SFTStep.
func (t *Trainer) Update(ctx context.Context, batch rl.Batch, o UpdateOptions) (rl.TrainMetrics, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	deal := func(rows []*row) [][]*row { return minibatches(rows, o.NumMinibatches, t.cfg.Seed, batch.Step) }
	metrics, err := t.step(ctx, objectiveGRPO, batch.Samples, deal, o.Optimizer, o.Position)
	if err != nil {
		return rl.TrainMetrics{}, fmt.Errorf("update of step %d: %w", batch.Step, err)
	}
	return metrics, nil
}

// step makes one update for each part that deal makes of the samples, or none.
func (t *Trainer) step(ctx context.Context, obj objective, samples []rl.Sample, deal func([]*row) [][]*row,
	o config.Optimizer, p Position) (rl.TrainMetrics, error) {
	if !t.ready {
		return rl.TrainMetrics{}, ErrNoState
	}
	lr, err := LearningRate(o, p)
	if err != nil {
		return rl.TrainMetrics{}, err
	}
	rows, err := makeRows(samples, t.cfg.Model)
	if err != nil {
		return rl.TrainMetrics{}, err
	}
	if len(rows) == 0 {
		return rl.TrainMetrics{}, errors.New("no token is in the loss")
	}
	if rows = t.withoutOverlong(obj, rows); len(rows) == 0 {
		t.counters.Schedule = p.Step
		return rl.TrainMetrics{LR: lr}, nil
	}
	parts := deal(rows)
	if err := t.fits(parts); err != nil {
		return rl.TrainMetrics{}, err
	}
	if err := t.tune(o); err != nil {
		return rl.TrainMetrics{}, err
	}
	before, err := t.prepare(ctx, obj, parts)
	if err != nil {
		return rl.TrainMetrics{}, err
	}
	defer before.release()
	if err := t.annotate(ctx, obj, parts); err != nil {
		return rl.TrainMetrics{}, err
	}
	total := meter{}
	for _, part := range parts {
		m, err := t.update(ctx, obj, part, o, rate{p.Step, lr})
		if err != nil {
			return rl.TrainMetrics{}, before.undo(t, err)
		}
		total.add(m)
	}
	t.counters.Schedule = p.Step
	return total.metrics(lr), nil
}

// prepare makes a step of several updates all or nothing, and gives the later
// ones the log-probabilities of the policy before the first. The caller releases
// the savepoint, to which a failed update goes back.
func (t *Trainer) prepare(ctx context.Context, obj objective, parts [][]*row) (*savepoint, error) {
	if len(parts) == 1 {
		return &savepoint{}, nil
	}
	for _, part := range parts[1:] { // the first finds its own, see inHasOld
		if t.cfg.Loss.OldLogprobs == config.OldRollout {
			break
		}
		if err := t.score(ctx, program{obj, passScore}, part, keepOld); err != nil {
			return nil, err
		}
	}
	return t.keep()
}

// rate is the learning rate of a step.
type rate struct {
	step int
	lr   float64
}

// update makes one optimizer update on the rows of a minibatch.
func (t *Trainer) update(ctx context.Context, obj objective, rows []*row, o config.Optimizer, at rate) (meter, error) {
	m := meter{updates: 1}
	m.tokens, m.lossTokens = countTokens(rows)
	m.sequences = len(rows)
	micros := t.microbatches(rows)
	hyper := hyper(o, at.lr, t.counters.Updates+1)
	var err error
	if len(micros) == 1 {
		err = t.updateAtOnce(ctx, obj, micros[0], hyper, &m)
	} else {
		err = t.updateInParts(ctx, obj, micros, hyper, &m)
	}
	if errors.Is(err, ErrDiverged) {
		err = t.examine(ctx, micros, func(mb microbatch) ([]*tensors.Tensor, error) { return t.gradients(obj, mb, &m) }, Divergence{
			Step: at.step, Objective: [...]string{"sft", "grpo"}[obj], LR: Number(at.lr),
			Loss: Number(m.metrics(0).Loss * float64(m.lossTokens)), GradNorm: Number(m.norm)})
	}
	if err != nil {
		return meter{}, err
	}
	if skips(o, m.norm) {
		m.updates, m.skipped = 0, 1
		return m, nil
	}
	t.counters.Updates++
	t.counters.TotalUpdates++
	return m, nil
}

// updateAtOnce makes the update in one device call.
func (t *Trainer) updateAtOnce(ctx context.Context, obj objective, mb microbatch, hyper *tensors.Tensor, m *meter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := program{obj, passUpdate}
	out, err := t.call(p, mb.shape, append(t.feed(p, mb, m), hyper)...)
	if err != nil {
		return err
	}
	if err := m.addSums(out[0]); err != nil {
		return err
	}
	return m.setNorm(out[1])
}

// updateInParts adds up the gradients of the microbatches and applies them. The
// denominator is that of the minibatch, so the sum is its gradient.
func (t *Trainer) updateInParts(ctx context.Context, obj objective, micros []microbatch, hyper *tensors.Tensor, m *meter) error {
	var grads []*tensors.Tensor
	defer func() { finalize(grads) }()
	p := program{obj, passGradient}
	feed := func(mb microbatch) []any { return t.feed(p, mb, m) }
	err := t.passes(ctx, p, micros, feed, func(_ microbatch, out []*tensors.Tensor) error {
		if err := m.addSums(out[0]); err != nil {
			finalize(out[1:])
			return err
		}
		if grads == nil {
			grads = out[1:]
			return nil
		}
		sum, err := t.donate(program{pass: passAdd}, nil, append(grads, out[1:]...))
		grads = sum
		return err
	})
	if err != nil {
		return err
	}
	if !m.finite() {
		return m.diverged()
	}
	out, err := t.donate(program{pass: passApply}, []any{hyper}, grads)
	grads = nil
	if err != nil {
		return err
	}
	return m.setNorm(out[0])
}

// gradients returns the sums of a microbatch of the minibatch that m counts, and
// its part of the gradient of each trained tensor.
func (t *Trainer) gradients(obj objective, mb microbatch, m *meter) ([]*tensors.Tensor, error) {
	p := program{obj, passGradient}
	return t.call(p, mb.shape, t.feed(p, mb, m)...)
}

// donate calls a program that takes the given tensors over.
func (t *Trainer) donate(p program, args []any, taken []*tensors.Tensor) ([]*tensors.Tensor, error) {
	if t.spread != nil { // inputs go by way of the host there
		defer finalize(taken)
		for _, x := range taken {
			args = append(args, x)
		}
		return t.call(p, shape{}, args...)
	}
	for _, x := range taken {
		d, err := graph.DonateTensorBuffer(x, t.backend, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		args = append(args, d)
	}
	return t.call(p, shape{}, args...)
}

// scores are what a pass says of a row's targets.
type scores struct {
	logprobs []float32
	entropy  []float32 // nil where the program does not yield it
}

// keepOld makes the scores those of the policy before the step.
func keepOld(r *row, v scores) { r.old, r.entropy = v.logprobs, v.entropy }

// score runs a scoring program on the rows and gives keep what it says of each.
func (t *Trainer) score(ctx context.Context, p program, rows []*row, keep func(*row, scores)) error {
	feed := func(mb microbatch) []any { return mb.feed(p, 0) }
	return t.passes(ctx, p, t.microbatches(rows), feed, func(mb microbatch, out []*tensors.Tensor) error {
		defer finalize(out)
		values := make([][]float32, 2)
		for i, x := range out {
			var err error
			if values[i], err = tensors.CopyFlatData[float32](x); err != nil {
				return fmt.Errorf("read log-probabilities: %w", err)
			}
		}
		for i, r := range mb.members {
			v := scores{logprobs: values[0][mb.starts[i]:][:r.length]}
			if values[1] != nil {
				v.entropy = values[1][mb.starts[i]:][:r.length]
			}
			keep(r, v)
		}
		return nil
	})
}

// Logprobs returns the log-probability of each token given the ones before it,
// at the temperature of the rollouts, and 0 for the first token. Masks and
// advantages are ignored.
func (t *Trainer) Logprobs(ctx context.Context, samples []rl.Sample) ([][]float32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ready {
		return nil, fmt.Errorf("logprobs: %w", ErrNoState)
	}
	var rows []*row
	for i := range samples {
		whole := rl.Sample{ProblemID: samples[i].ProblemID, Rollout: samples[i].Rollout, Tokens: samples[i].Tokens}
		whole.LossMask = make([]bool, len(whole.Tokens))
		if err := checkSample(&whole, t.cfg.Model); err != nil {
			return nil, fmt.Errorf("logprobs: sample %d: %w", i, err)
		}
		if len(whole.Tokens) > 1 {
			rows = append(rows, &row{sample: &whole, index: i, length: len(whole.Tokens) - 1})
		}
	}
	if err := t.score(ctx, program{objectiveGRPO, passScore}, rows, keepOld); err != nil {
		return nil, fmt.Errorf("logprobs: %w", err)
	}
	out := make([][]float32, len(samples))
	for i := range samples {
		out[i] = make([]float32, len(samples[i].Tokens))
	}
	for _, r := range rows {
		copy(out[r.index][1:], r.old)
	}
	return out, nil
}

// finalize frees tensors at once instead of at the next garbage collection.
func finalize(xs []*tensors.Tensor) {
	for _, x := range xs {
		_ = x.FinalizeAll() // fails only for a buffer that is gone already
	}
}
