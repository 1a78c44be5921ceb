package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomlx/gomlx/core/tensors"

	"temper/internal/blob"
	"temper/trainer/checkpoint"
	"temper/trainer/qwen3"
)

// counters is what the state holds besides tensors.
type counters = checkpoint.Counters

// Init starts training from the random weights of a seed.
func (t *Trainer) Init(seed uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ready = false
	if err := qwen3.Init(t.store, t.cfg.Model, seed); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return t.start()
}

// Import starts training from given weights, for example a published policy.
func (t *Trainer) Import(weights []qwen3.Tensor) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ready = false
	if err := qwen3.Import(t.store, t.cfg.Model, lookup(weights)); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	return t.start()
}

// start gives fresh weights fresh counters and, with the first update, moments.
func (t *Trainer) start() error {
	t.counters = counters{}
	if err := t.zeroMoments(); err != nil {
		return err
	}
	t.ready = true
	return nil
}

// ResetOptimizer forgets the moments and their age, on which the correction of
// their bias depends. Weights and the total of updates stay. Fresh moments make
// the first updates as large as the learning rate in every weight, whatever the
// gradient, so the schedule should warm up again, or be low, where they are reset.
func (t *Trainer) ResetOptimizer() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ready {
		return fmt.Errorf("reset optimizer: %w", ErrNoState)
	}
	t.counters.Updates, t.counters.Schedule = 0, 0
	return t.zeroMoments()
}

// Counters returns the numbers of updates made.
func (t *Trainer) Counters() checkpoint.Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counters
}

// Snapshot copies the full state to the host; it shares nothing with the trainer.
// It writes into the memory of room, an earlier snapshot that nobody reads any
// more, where the sizes are the same; the zero State is no room.
func (t *Trainer) Snapshot(room checkpoint.State) (checkpoint.State, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.snapshot(room)
}

// RestoreState replaces the full state by a snapshot. After an error the
// trainer holds no state.
func (t *Trainer) RestoreState(s checkpoint.State) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.restore(s)
}

// Save stores the full state as the checkpoint of a step. Saving the same state
// again is a no-op; see checkpoint.Save.
func (t *Trainer) Save(ctx context.Context, store blob.Store, prefix string, step int) (blob.Ref, error) {
	s, err := t.Snapshot(checkpoint.State{})
	if err != nil {
		return blob.Ref{}, err
	}
	return checkpoint.Save(ctx, store, prefix, step, s)
}

// Restore replaces the full state by the checkpoint at ref and returns its step.
func (t *Trainer) Restore(ctx context.Context, store blob.Store, ref blob.Ref) (step int, err error) {
	step, s, err := checkpoint.Load(ctx, store, ref)
	if err != nil {
		return 0, err
	}
	if err := t.RestoreState(s); err != nil {
		return 0, fmt.Errorf("%s: %w", ref.Key, err)
	}
	return step, nil
}

// Publish stores the weights as a policy in Hugging Face layout under prefix,
// with the tokenizer and the files of p, and holds one tensor at a time on the
// host. Publishing the same policy again is a no-op; see checkpoint.Publish.
func (t *Trainer) Publish(ctx context.Context, store blob.Store, prefix string, p checkpoint.Policy) (blob.Ref, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ready {
		return blob.Ref{}, fmt.Errorf("publish policy %s: %w", prefix, ErrNoState)
	}
	p.Model = t.cfg.Model
	return checkpoint.PublishFrom(ctx, store, prefix, p, func(name string) (qwen3.Tensor, error) {
		return qwen3.ExportTensor(t.store, t.cfg.Model, name)
	})
}

// Weights copies the weights to the host.
func (t *Trainer) Weights() ([]qwen3.Tensor, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ready {
		return nil, fmt.Errorf("weights: %w", ErrNoState)
	}
	return qwen3.Export(t.store, t.cfg.Model)
}

func (t *Trainer) restore(s checkpoint.State) error {
	t.ready = false
	if s.Model != t.cfg.Model {
		return fmt.Errorf("restore: state of the model %+v, this trainer has %+v", s.Model, t.cfg.Model)
	}
	if err := qwen3.Import(t.store, t.cfg.Model, lookup(s.Weights)); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := t.restoreMoments(s); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	t.counters = s.Counters
	t.ready = true
	return nil
}

// restoreMoments takes the moments of a state over. Tensors without any were
// frozen; before the first update none has.
func (t *Trainer) restoreMoments(s checkpoint.State) error {
	if s.Counters.Updates == 0 {
		return t.zeroMoments()
	}
	first, second := lookup(s.FirstMoments), lookup(s.SecondMoments)
	var trained []qwen3.TensorSpec
	for _, spec := range t.cfg.Model.Tensors() {
		m, hasFirst := first(spec.Name)
		v, hasSecond := second(spec.Name)
		if !hasFirst && !hasSecond {
			continue
		}
		if len(m.Data) != spec.Size() || len(v.Data) != spec.Size() {
			return fmt.Errorf("moments of %s: %d and %d values, want %d", spec.Name, len(m.Data), len(v.Data), spec.Size())
		}
		trained = append(trained, spec)
	}
	if len(trained) == 0 || len(trained) != len(s.FirstMoments) || len(trained) != len(s.SecondMoments) {
		return fmt.Errorf("moments of %d and %d tensors after %d updates, %d of them of this model",
			len(s.FirstMoments), len(s.SecondMoments), s.Counters.Updates, len(trained))
	}
	if err := t.holdMoments(trained); err != nil {
		return err
	}
	for _, spec := range trained {
		m, _ := first(spec.Name) // both were found above
		v, _ := second(spec.Name)
		if err := errors.Join(t.setMoment(firstMomentPath(spec.Name), spec, m.Data), t.setMoment(secondMomentPath(spec.Name), spec, v.Data)); err != nil {
			return err
		}
	}
	return nil
}

// moments calls fn with the path of each moment that the tensor has.
func moments(spec qwen3.TensorSpec, fn func(path string) error) error {
	return errors.Join(fn(firstMomentPath(spec.Name)), fn(secondMomentPath(spec.Name)))
}

// holdMoments makes room for the moments of the given tensors and of no others.
// New ones are zero.
func (t *Trainer) holdMoments(trained []qwen3.TensorSpec) error {
	keep := map[string]bool{}
	for _, spec := range trained {
		keep[spec.Name] = true
	}
	for _, spec := range t.cfg.Model.Tensors() {
		err := moments(spec, func(path string) error {
			if has := t.store.GetVariable(path) != nil; has == keep[spec.Name] {
				return nil
			}
			t.dropUpdates() // their graphs hold the variables as they were
			if !keep[spec.Name] {
				return t.store.DeleteVariable(path)
			}
			return t.setMoment(path, spec, make([]float32, spec.Size()))
		})
		if err != nil {
			return fmt.Errorf("moments of %s: %w", spec.Name, err)
		}
	}
	return nil
}

// zeroMoments sets the moments that there are to zero.
func (t *Trainer) zeroMoments() error {
	for _, spec := range t.cfg.Model.Tensors() {
		err := moments(spec, func(path string) error {
			if t.store.GetVariable(path) == nil {
				return nil
			}
			return t.setMoment(path, spec, make([]float32, spec.Size()))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// setMoment fills the variable of a moment, which need not exist yet.
func (t *Trainer) setMoment(path string, spec qwen3.TensorSpec, data []float32) error {
	value := tensors.FromFlatDataAndDimensions(data, spec.Shape...)
	v := t.store.GetVariable(path)
	if v != nil {
		if err := v.SetValue(value); err != nil {
			return fmt.Errorf("moments of %s: %w", spec.Name, err)
		}
		return nil
	}
	v, err := t.store.CreateVariable(path, value)
	if err != nil {
		return fmt.Errorf("moments of %s: %w", spec.Name, err)
	}
	v.SetTrainable(false)
	return nil
}

// dropUpdates forgets the graphs that read or write moments.
func (t *Trainer) dropUpdates() {
	for p, exec := range t.programs {
		if p.pass != passScore {
			exec.Finalize()
			delete(t.programs, p)
		}
	}
	for key := range t.graphs {
		if key.program.pass != passScore {
			delete(t.graphs, key)
		}
	}
}

// lookup finds tensors by name.
func lookup(list []qwen3.Tensor) func(string) (qwen3.Tensor, bool) {
	byName := make(map[string]qwen3.Tensor, len(list))
	for _, t := range list {
		byName[t.Name] = t
	}
	return func(name string) (qwen3.Tensor, bool) { t, ok := byName[name]; return t, ok }
}
