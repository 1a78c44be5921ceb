package trainer

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/core/tensors/dtensor"
	"github.com/gomlx/gomlx/ml/model"

	"temper/trainer/device"
	"temper/trainer/qwen3"
)

// spread is how a trainer uses the devices of a mesh: weights, gradients and
// moments are dealt by device.Shardings, rows over the data axis, and the runtime
// partitions the graphs. What a pass yields besides new weights and moments comes
// back whole, by way of the host. It has run on no device yet; see device.Mesh.
type spread struct {
	mesh    device.Mesh
	devices *distributed.DeviceMesh
	weights []device.Sharding // in the order of qwen3.Config.Tensors
}

// newSpread checks the mesh against the model and the opened backend; nil for
// a mesh of one device.
func newSpread(cfg Config, backend compute.Backend) (*spread, error) {
	if !cfg.Mesh.Several() {
		return nil, nil
	}
	if n := backend.NumDevices(); n < cfg.Mesh.NumDevices() {
		return nil, fmt.Errorf("mesh %v: %d devices, the backend %s drives %d: %w", cfg.Mesh, cfg.Mesh.NumDevices(), cfg.Backend, n, device.ErrNoDevice)
	}
	weights, err := device.Shardings(cfg.Model, cfg.Mesh)
	if err != nil {
		return nil, fmt.Errorf("mesh %v: %w", cfg.Mesh, err)
	}
	devices, err := cfg.Mesh.Device()
	if err != nil {
		return nil, err
	}
	return &spread{mesh: cfg.Mesh, devices: devices, weights: weights}, nil
}

// rows rounds up to what the data axis divides; rows too many are padding.
func (s *spread) rows(micros []microbatch) []microbatch {
	if s == nil {
		return micros
	}
	for i := range micros {
		micros[i].rows = (micros[i].rows + s.mesh.Data - 1) / s.mesh.Data * s.mesh.Data
	}
	return micros
}

// sharding is how input i of a program is dealt: tensors of gradients as their
// weights, those with a value per row or token by rows, numbers not at all.
func (s *spread) sharding(p program, i int, dims []int, trained []qwen3.TensorSpec) (device.Sharding, error) {
	first := len(dims) // of the gradients among the inputs
	switch p.pass {
	case passAdd:
		first = 0
	case passApply:
		first = 1 // after the optimizer's numbers
	case passScore, passReference, passGradient, passUpdate, passCopy:
		if len(dims) >= 2 {
			return device.RowSharding(s.mesh, dims)
		}
		return device.Whole(dims), nil
	}
	if i < first {
		return device.Whole(dims), nil
	}
	name := trained[(i-first)%len(trained)].Name
	for _, w := range s.weights {
		if w.Name == name {
			return w, nil
		}
	}
	return device.Sharding{}, fmt.Errorf("%s: no sharding of %s", p, name)
}

// place tells the variables of a store that have no place yet where they are.
func (s *spread) place(store *model.Store) error {
	for _, path := range []func(string) string{qwen3.VariablePath, firstMomentPath, secondMomentPath} {
		var there []device.Sharding
		for _, w := range s.weights {
			if v := store.GetVariable(path(w.Name)); v != nil && v.ShardingSpec() == nil {
				there = append(there, w)
			}
		}
		if err := device.Place(store, there, s.mesh, path); err != nil {
			return err
		}
	}
	return nil
}

// callSpread is call on several devices.
func (t *Trainer) callSpread(p program, args []any) ([]*tensors.Tensor, error) {
	dealt := make([]any, len(args))
	specs := make([]*distributed.ShardingSpec, len(args))
	for i, arg := range args {
		x, ok := arg.(*tensors.Tensor)
		if !ok {
			return nil, fmt.Errorf("%s: input %d is a %T, want a tensor", p, i, arg)
		}
		sharding, err := t.spread.sharding(p, i, x.Shape().Dimensions, t.tuning.trained)
		if err != nil {
			return nil, err
		}
		if specs[i], err = sharding.Spec(t.spread.devices); err != nil {
			return nil, err
		}
		if dealt[i], err = dtensor.ShardTensor(specs[i], x); err != nil {
			return nil, fmt.Errorf("%s: input %d: %w", p, i, err)
		}
	}
	if err := t.spread.place(t.storeOf(p)); err != nil {
		return nil, err
	}
	exec := t.programs[p]
	if exec == nil {
		var err error
		if exec, err = model.NewExec(t.backend, t.storeOf(p), t.build(p)); err != nil {
			return nil, &GraphError{Op: p.String(), Err: err}
		}
		exec.AutoSharding(t.spread.devices).WithInputShardingSpecs(specs...).SetMaxCache(-1)
		t.programs[p] = exec
	}
	var out []*tensors.Tensor
	err := guard(p.String(), func() error {
		parts, err := exec.DistributedExec(dealt...)
		if err != nil {
			return err
		}
		for _, part := range parts {
			whole, err := part.Merge()
			if err != nil {
				return err
			}
			out = append(out, whole)
		}
		return nil
	})
	return out, err
}
