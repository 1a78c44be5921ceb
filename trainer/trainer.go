package trainer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
	"temper/trainer/optimizer"
	"temper/trainer/packing"
	"temper/trainer/passes"
	"temper/trainer/weights/tensor"
)

// Errors of the package. Callers use errors.Is.
var (
	// ErrDiverged means that a loss, a gradient or a metric was not finite. The state is
	// unchanged; the same call fails again.
	ErrDiverged = fault.Newf(fault.Diverged, "training diverged")
	// ErrNoState means that the trainer holds no weights, or that a failed device call
	// consumed them: call Init or Restore first.
	ErrNoState = optimizer.ErrNone
	// ErrNoReference means that the objective needs a reference policy and the trainer has
	// none: call KeepReference or LoadReference first.
	ErrNoReference = errors.New("trainer holds no reference policy")
	// ErrTooLarge means that a step was not started because one of its passes needs too much
	// memory. The state is unchanged.
	ErrTooLarge = passes.ErrTooLarge
)

// GraphError is a failure to build or run a computation graph.
type GraphError = passes.GraphError

// Position is a place in the learning-rate schedule.
type Position = optimizer.Position

// CheckOptimizer finds the mistakes of an optimizer that depend on the model; see
// optimizer.Check.
func CheckOptimizer(m model.Config, key string, o config.Optimizer) error {
	return optimizer.Check(m, key, o)
}

// Trainer trains one policy on one device. Its methods may be called concurrently; they run one
// after another.
type Trainer struct {
	cfg   Config
	plans plans

	mu        sync.Mutex // owns the device and everything below
	state     *optimizer.State
	reference *optimizer.Reference
	passes    *passes.Passes
}

// New opens the device. The trainer has no weights yet: Init or Restore.
func New(cfg Config) (*Trainer, error) {
	if cfg.Backend == "" {
		cfg.Backend = "go"
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("trainer: %w", err)
	}
	t := &Trainer{cfg: cfg, plans: cfg.plans(), state: optimizer.NewState(cfg.Model), reference: optimizer.NewReference(cfg.Model)}
	c, err := cfg.passes()
	if err == nil {
		t.passes, err = passes.Open(c, t.state, t.reference)
	}
	if err != nil {
		return nil, fmt.Errorf("trainer: %w", err)
	}
	return t, nil
}

// Close releases the device. The trainer is unusable afterwards.
func (t *Trainer) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.Close()
	t.reference.Close()
	t.passes.Close()
}

// Model returns the architecture.
func (t *Trainer) Model() model.Config { return t.cfg.Model }

// NumGraphs is the number of graphs compiled so far. Bucketed shapes keep it
// below MaxGraphs.
func (t *Trainer) NumGraphs() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.passes.NumGraphs()
}

// Init starts training from the random weights of a seed.
func (t *Trainer) Init(seed uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.Init(seed)
}

// Import starts training from given weights, for example a published policy.
func (t *Trainer) Import(weights []tensor.Named) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.Import(model.WithAdapters(t.cfg.Model, weights, t.cfg.Seed))
}

// ResetOptimizer drops the moments and their age. The weights and the total of updates stay.
// The first updates with fresh moments move every weight by the whole learning rate, whatever
// the gradient, so the learning rate should warm up again, or be low.
func (t *Trainer) ResetOptimizer() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.ResetOptimizer()
}

// SFTStep makes one supervised update on the samples: the mean negative
// log-likelihood of the tokens in their LossMask. Advantages and rollout
// log-probabilities are ignored.
// Errors: ErrDiverged as a DivergedError, ErrTooLarge, ErrNoState, ctx.Err(),
// config.Problems, a GraphError, or an error that names the sample.
func (t *Trainer) SFTStep(ctx context.Context, samples []rl.Sample, o config.Optimizer, p Position) (rl.TrainMetrics, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	whole := func(rows []*packing.Row) [][]*packing.Row { return [][]*packing.Row{rows} }
	metrics, err := t.newStep(passes.Supervised, o, p).apply(ctx, samples, whole)
	if err != nil {
		return rl.TrainMetrics{}, fmt.Errorf("sft step %d: %w", p.Step, err)
	}
	return metrics, nil
}

// UpdateOptions select how a batch becomes updates.
type UpdateOptions = optimizer.Update

// Update makes the updates of one step on its batch by the clipped policy objective. With
// several minibatches the policy before the step is the old policy of all of them.
// It returns the errors of SFTStep.
func (t *Trainer) Update(ctx context.Context, batch rl.Batch, o UpdateOptions) (rl.TrainMetrics, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	deal := func(rows []*packing.Row) [][]*packing.Row {
		return packing.Minibatches(rows, o.NumMinibatches, t.cfg.Seed, batch.Step)
	}
	metrics, err := t.newStep(passes.Policy, o.Optimizer, o.Position).apply(ctx, batch.Samples, deal)
	if err != nil {
		return rl.TrainMetrics{}, fmt.Errorf("update of step %d: %w", batch.Step, err)
	}
	return metrics, nil
}

// Logprobs returns the log-probability of each token given the ones before it, at the
// temperature of the rollouts, and 0 for the first token. It ignores masks and advantages.
func (t *Trainer) Logprobs(ctx context.Context, samples []rl.Sample) ([][]float32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	logprobs, _, err := scoresOf(ctx, t, samples)
	return logprobs, err
}

// Scores is Logprobs with the entropy of each token's distribution, in nats. It changes
// nothing. It needs Config.Entropies.
func (t *Trainer) Scores(ctx context.Context, samples []rl.Sample) (logprobs, entropies [][]float32, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	logprobs, entropies, err = scoresOf(ctx, t, samples)
	if err == nil && entropies == nil {
		err = errors.New("scores: the trainer was not built for entropies")
	}
	return logprobs, entropies, err
}

// scoresOf is Scores, without entropies if the trainer has none. The caller holds t.mu.
func scoresOf(ctx context.Context, t *Trainer, samples []rl.Sample) (logprobs, entropies [][]float32, err error) {
	if !t.state.Ready() {
		return nil, nil, fmt.Errorf("logprobs: %w", ErrNoState)
	}
	logprobs, entropies, err = scorerOf(t).all(ctx, samples, limitsOf(t.cfg.Model))
	if err != nil {
		return nil, nil, fmt.Errorf("logprobs: %w", err)
	}
	return logprobs, entropies, nil
}

// Counters returns the numbers of updates made.
func (t *Trainer) Counters() checkpoint.Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.Counters()
}

// Weights copies the weights to the host.
func (t *Trainer) Weights() ([]tensor.Named, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.Weights()
}

// newStep prepares a step. The caller holds t.mu.
func (t *Trainer) newStep(objective passes.Objective, o config.Optimizer, p Position) *step {
	return &step{
		passes: t.passes, state: t.state, reference: t.reference, scorer: scorerOf(t), plan: t.plans[objective], log: t.cfg.Log,
		model: t.cfg.Model, loss: t.cfg.Loss, memory: passes.Memory{Limit: t.cfg.MemoryLimit, Bytes: t.cfg.StepBytes},
		objective: objective, optimizer: o, position: p,
	}
}

func scorerOf(t *Trainer) scorer { return scorer{passes: t.passes, plan: t.plans[passes.Policy]} }

// limitsOf returns the limits of a sample for a network.
func limitsOf(m model.Config) packing.Limits {
	return packing.Limits{VocabSize: m.VocabSize, MaxTokens: m.MaxPositionEmbeddings}
}
