package activities_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/qwen3"
)

// errDied is what a process that is killed does not even get to say.
var errDied = errors.New("died")

// fate counts what a trainer does to the world and ends it at one moment.
type fate struct {
	count int
	// at is the moment of death, from 1; 0 never comes.
	at   int
	dead bool
	// names lists the moments, for people who read a failed test.
	names []string
}

// moment reports whether this is the end, or after it.
func (f *fate) moment(format string, args ...any) bool {
	f.count++
	f.names = append(f.names, fmt.Sprintf(format, args...))
	f.dead = f.dead || f.count == f.at
	return f.dead
}

// mortal is a store whose writes may be the last thing that a process does, or
// what it dies before.
type mortal struct {
	blob.Store
	fate *fate
}

func (m mortal) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	if m.fate.moment("before put %s", key) {
		return blob.Ref{}, errDied
	}
	ref, err := m.Store.Put(ctx, key, r, cond)
	if m.fate.moment("after put %s", key) {
		return blob.Ref{}, errDied
	}
	return ref, err
}

func (m mortal) Delete(ctx context.Context, key string) error {
	if m.fate.moment("before delete %s", key) {
		return errDied
	}
	return m.Store.Delete(ctx, key)
}

func (m mortal) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if m.fate.dead {
		return nil, errDied
	}
	return m.Store.Get(ctx, key)
}

func (m mortal) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	if m.fate.dead {
		return nil, errDied
	}
	return m.Store.List(ctx, prefix)
}

// chain is a Learner whose whole state is a hash of all that was done to it, in
// order: an update that is missing, doubled or misplaced shows.
type chain struct {
	fate      *fate
	model     qwen3.Config
	state     [sha256.Size]byte
	updates   int
	closed    bool
	reference [sha256.Size]byte // the state that was made the reference policy
	taught    []int             // the rows of all supervised updates, in order
	rooms     int               // snapshots into the memory of an earlier one

	diverges error // of the next supervised update
}

var _ learner.Learner = (*chain)(nil)

// do adds to the chain. A learner that dies may have changed its state.
func (c *chain) do(what string, args ...any) error {
	if c.closed {
		return errors.New("the learner is closed")
	}
	if c.fate.moment("before %s", what) {
		return errDied
	}
	data, err := json.Marshal(args)
	if err != nil {
		return err
	}
	c.state = sha256.Sum256(fmt.Appendf(c.state[:], "%s %s", what, data))
	if c.fate.moment("after %s", what) {
		return errDied
	}
	return nil
}

func (c *chain) Init(seed uint64) error {
	c.state, c.updates = [sha256.Size]byte{}, 0
	return c.do("init", seed)
}

func (c *chain) Import(weights []qwen3.Tensor) error {
	c.state, c.updates = [sha256.Size]byte{}, 0
	return c.do("import", weights)
}

func (c *chain) ResetOptimizer() error { return c.do("reset") }

func (c *chain) SFTStep(_ context.Context, samples []rl.Sample, o config.Optimizer, p trainer.Position) (rl.TrainMetrics, error) {
	var rows []int
	for _, s := range samples {
		rows = append(rows, s.Rollout, len(s.Tokens))
		c.taught = append(c.taught, s.Rollout)
	}
	err := c.do("sft", rows, o, p)
	return c.metrics(), errors.Join(err, c.diverges)
}

func (c *chain) Update(_ context.Context, batch rl.Batch, o trainer.UpdateOptions) (rl.TrainMetrics, error) {
	err := c.do("update", batch, o, c.reference)
	return c.metrics(), err
}

func (c *chain) KeepReference() error {
	if c.fate.moment("before reference") {
		return errDied
	}
	c.reference = c.state
	return nil
}

func (c *chain) LoadReference(ctx context.Context, store blob.Store, ref blob.Ref) error {
	_, s, err := checkpoint.Load(ctx, store, ref)
	if err != nil {
		return err
	}
	if c.fate.moment("before reference %s", ref.Key) {
		return errDied
	}
	for i, v := range s.Weights[0].Data {
		c.reference[i] = byte(v)
	}
	return nil
}

func (c *chain) metrics() rl.TrainMetrics {
	c.updates++
	return rl.TrainMetrics{Loss: float64(c.state[0]), Updates: c.updates, Tokens: 10}
}

// tensors is the state as weights.
func (c *chain) tensors() []qwen3.Tensor {
	t := qwen3.Tensor{Name: "chain", Shape: []int{sha256.Size}}
	for _, b := range c.state {
		t.Data = append(t.Data, float32(b))
	}
	return []qwen3.Tensor{t}
}

// Snapshot writes over its room, as a save that still reads it must not have given it away.
func (c *chain) Snapshot(room checkpoint.State) (checkpoint.State, error) {
	weights := c.tensors()
	if len(room.Weights) > 0 {
		c.rooms++
		copy(room.Weights[0].Data, weights[0].Data)
		weights = room.Weights
	}
	return checkpoint.State{Model: c.model, Counters: checkpoint.Counters{TotalUpdates: int64(c.updates)}, Weights: weights}, nil
}

func (c *chain) RestoreState(s checkpoint.State) error {
	if c.fate.moment("before restore") {
		return errDied
	}
	for i, v := range s.Weights[0].Data {
		c.state[i] = byte(v)
	}
	c.updates = int(s.Counters.TotalUpdates)
	return nil
}

func (c *chain) Restore(ctx context.Context, store blob.Store, ref blob.Ref) (int, error) {
	step, s, err := checkpoint.Load(ctx, store, ref)
	if err != nil {
		return 0, err
	}
	if c.fate.moment("before restore %s", ref.Key) {
		return 0, errDied
	}
	for i, v := range s.Weights[0].Data {
		c.state[i] = byte(v)
	}
	c.updates = int(s.Counters.TotalUpdates)
	return step, nil
}

func (c *chain) Publish(ctx context.Context, store blob.Store, prefix string, p checkpoint.Policy) (blob.Ref, error) {
	return checkpoint.PublishFrom(ctx, store, prefix, p, func(name string) (qwen3.Tensor, error) {
		specs := p.Model.Tensors()
		i := slices.IndexFunc(specs, func(s qwen3.TensorSpec) bool { return s.Name == name })
		t := qwen3.Tensor{Name: name, Shape: specs[i].Shape, Data: make([]float32, specs[i].Size())}
		for i := range t.Data { // any weights will do that show the whole state
			t.Data[i] = float32(c.state[i%len(c.state)])
		}
		return t, nil
	})
}

func (c *chain) Close() { c.closed = true }
