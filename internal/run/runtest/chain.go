package runtest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
	"temper/trainer/optimizer"
)

// Chain is a learner whose whole state is a hash of all that was done to it, in
// order: an update that is missing, doubled or misplaced shows.
type Chain struct {
	Fate      *Fate
	Model     model.Config
	State     [sha256.Size]byte
	Updates   int
	Closed    bool
	Reference [sha256.Size]byte // the state that was made the reference policy
	Taught    []int             // the rows of all supervised updates, in order
	Reused    int               // snapshots into the memory of an earlier one
	Diverges  error             // of the next supervised update
}

var _ learner.Learner = (*Chain)(nil)

// do adds to the chain. A learner that dies may have changed its state by then.
func (c *Chain) do(what string, args ...any) error {
	if c.Closed {
		return errors.New("the learner is closed")
	}
	if c.Fate.moment("before %s", what) {
		return ErrDied
	}
	data, err := json.Marshal(args)
	if err != nil {
		return err
	}
	c.State = sha256.Sum256(fmt.Appendf(c.State[:], "%s %s", what, data))
	if c.Fate.moment("after %s", what) {
		return ErrDied
	}
	return nil
}

// Init starts the chain from a seed.
func (c *Chain) Init(seed uint64) error {
	c.State, c.Updates = [sha256.Size]byte{}, 0
	return c.do("init", seed)
}

// Import starts the chain from weights.
func (c *Chain) Import(weights []model.Tensor) error {
	c.State, c.Updates = [sha256.Size]byte{}, 0
	return c.do("import", weights)
}

// ResetOptimizer is a link of the chain.
func (c *Chain) ResetOptimizer() error { return c.do("reset") }

// SFTStep is a link of the chain, with the rows of its samples.
func (c *Chain) SFTStep(_ context.Context, samples []rl.Sample, o config.Optimizer, p optimizer.Position) (rl.TrainMetrics, error) {
	var rows []int
	for _, s := range samples {
		rows = append(rows, s.Rollout, len(s.Tokens))
		c.Taught = append(c.Taught, s.Rollout)
	}
	err := c.do("sft", rows, o, p)
	return c.metrics(), errors.Join(err, c.Diverges)
}

// Update is a link of the chain, with the batch and the reference policy.
func (c *Chain) Update(_ context.Context, batch rl.Batch, o optimizer.Update) (rl.TrainMetrics, error) {
	err := c.do("update", batch, o, c.Reference)
	return c.metrics(), err
}

// Scores says the same of each token, and is no link of the chain.
func (c *Chain) Scores(_ context.Context, samples []rl.Sample) (logprobs, entropies [][]float32, err error) {
	for _, s := range samples {
		l, e := make([]float32, len(s.Tokens)), make([]float32, len(s.Tokens))
		for i := range l {
			l[i], e[i] = -1, float32(i)
		}
		logprobs, entropies = append(logprobs, l), append(entropies, e)
	}
	return logprobs, entropies, nil
}

// KeepReference makes the state the reference policy.
func (c *Chain) KeepReference() error {
	if c.Fate.moment("before reference") {
		return ErrDied
	}
	c.Reference = c.State
	return nil
}

// LoadReference reads the reference policy from a checkpoint.
func (c *Chain) LoadReference(ctx context.Context, store blob.Store, ref blob.Ref) error {
	_, s, err := checkpoint.Load(ctx, store, ref)
	if err != nil {
		return err
	}
	if c.Fate.moment("before reference %s", ref.Key) {
		return ErrDied
	}
	for i, v := range s.Weights[0].Data {
		c.Reference[i] = byte(v)
	}
	return nil
}

func (c *Chain) metrics() rl.TrainMetrics {
	c.Updates++
	return rl.TrainMetrics{Loss: float64(c.State[0]), Updates: c.Updates, Tokens: 10}
}

// tensors is the state as weights.
func (c *Chain) tensors() []model.Tensor {
	t := model.Tensor{Name: "chain", Shape: []int{sha256.Size}}
	for _, b := range c.State {
		t.Data = append(t.Data, float32(b))
	}
	return []model.Tensor{t}
}

// Snapshot writes over its room, as a save that Still reads it must not have given it away.
func (c *Chain) Snapshot(room checkpoint.State) (checkpoint.State, error) {
	weights := c.tensors()
	if len(room.Weights) > 0 {
		c.Reused++
		copy(room.Weights[0].Data, weights[0].Data)
		weights = room.Weights
	}
	return checkpoint.State{Model: c.Model, Counters: checkpoint.Counters{TotalUpdates: int64(c.Updates)}, Weights: weights}, nil
}

// RestoreState takes the state from a snapshot.
func (c *Chain) RestoreState(s checkpoint.State) error {
	if c.Fate.moment("before restore") {
		return ErrDied
	}
	for i, v := range s.Weights[0].Data {
		c.State[i] = byte(v)
	}
	c.Updates = int(s.Counters.TotalUpdates)
	return nil
}

// Restore reads the state from a checkpoint.
func (c *Chain) Restore(ctx context.Context, store blob.Store, ref blob.Ref) (int, error) {
	step, s, err := checkpoint.Load(ctx, store, ref)
	if err != nil {
		return 0, err
	}
	if c.Fate.moment("before restore %s", ref.Key) {
		return 0, ErrDied
	}
	for i, v := range s.Weights[0].Data {
		c.State[i] = byte(v)
	}
	c.Updates = int(s.Counters.TotalUpdates)
	return step, nil
}

// Publish stores weights that show the whole state.
func (c *Chain) Publish(ctx context.Context, store blob.Store, prefix string, p checkpoint.Policy) (blob.Ref, error) {
	return checkpoint.PublishFrom(ctx, store, prefix, p, func(name string) (model.Tensor, error) {
		specs := p.Model.Tensors()
		i := slices.IndexFunc(specs, func(s model.TensorSpec) bool { return s.Name == name })
		t := model.Tensor{Name: name, Shape: specs[i].Shape, Data: make([]float32, specs[i].Size())}
		for i := range t.Data {
			t.Data[i] = float32(c.State[i%len(c.State)])
		}
		return t, nil
	})
}

// Close ends the learner: every later use of it fails.
func (c *Chain) Close() { c.Closed = true }
