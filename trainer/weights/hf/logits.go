package hf

import (
	"errors"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
	"temper/trainer/model/graphs"
)

// Logits computes the scores over the vocabulary after each of the ids, in
// float32: [T][V], or [1][V] for LastRow. backend is a name that device.Open
// takes.
func (m *Model) Logits(backend string, ids []int32, rows Rows) ([][]float32, error) {
	if err := m.CheckIDs(ids); err != nil {
		return nil, err
	}
	store := ml.NewStore()
	if err := m.Import(store); err != nil {
		return nil, err
	}
	dev, err := device.Open(backend)
	if err != nil {
		return nil, err
	}
	defer dev.Finalize()
	exec, err := ml.NewExec(dev, store, func(scope *ml.Scope, tokens *graph.Node) *graph.Node {
		hidden := graphs.Forward(scope, m.Config.Config, graphs.Inputs{Tokens: tokens}, graphs.Options{}) // [1, T, D]
		if rows == LastRow {
			hidden = graph.Slice(hidden, graph.AxisRange(), graph.AxisElem(len(ids)-1), graph.AxisRange())
		}
		return graphs.Logits(scope, m.Config.Config, hidden) // [1, T or 1, V]
	})
	if err != nil {
		return nil, fmt.Errorf("logits: %w", err)
	}
	defer kernels.Enter(kernels.Native)()
	out, err := exec.Call([][]int32{ids})
	if err != nil {
		return nil, fmt.Errorf("logits: %w", err)
	}
	flat, err := tensors.CopyFlatData[float32](out[0])
	if err != nil {
		return nil, fmt.Errorf("logits: %w", err)
	}
	var logits [][]float32
	for v := m.Config.VocabSize; len(flat) > 0; flat = flat[v:] {
		logits = append(logits, flat[:v])
	}
	return logits, nil
}

// Rows selects the positions that Logits returns.
type Rows int

// AllRows are every position, LastRow is the one that predicts the next token.
const (
	AllRows Rows = iota
	LastRow
)

// CheckIDs reports every id outside the vocabulary, and a sequence that is
// empty or longer than the model's positions.
func (m *Model) CheckIDs(ids []int32) error {
	var errs []error
	if n, limit := len(ids), m.Config.MaxPositionEmbeddings; n == 0 || n > limit {
		errs = append(errs, fmt.Errorf("%d ids, want 1 to %d (max_position_embeddings)", n, limit))
	}
	for i, id := range ids {
		if id < 0 || int(id) >= m.Config.VocabSize {
			errs = append(errs, fmt.Errorf("id %d at position %d is outside the vocabulary of %d", id, i, m.Config.VocabSize))
		}
	}
	return errors.Join(errs...)
}

// Import puts the weights into a store under the names of trainer/model, one at a time: the
// host holds one copy of them.
func (m *Model) Import(store *ml.Store) error {
	for t, err := range m.All() {
		if err != nil {
			return err
		}
		value := tensors.FromFlatDataAndDimensions(t.Data, t.Shape...)
		path := graphs.VariablePath(t.Name)
		if v := store.GetVariable(path); v != nil {
			err = v.SetValue(value)
		} else {
			_, err = store.CreateVariable(path, value)
		}
		if err != nil {
			return fmt.Errorf("import tensor %s: %w", t.Name, err)
		}
	}
	return nil
}
