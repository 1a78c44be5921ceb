package pass

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/core/tensors/dtensor"
	"github.com/gomlx/gomlx/ml/model"

	"temper/trainer/device"
	"temper/trainer/optimizer"
	"temper/trainer/qwen3"
)

// sharding deals tensors over the devices of a mesh: weights, gradients and moments
// by device.Shardings, the rows of a microbatch over the data axis. The runtime
// partitions the graphs. New weights and moments stay where they are; everything
// else that a pass yields comes back whole, by way of the host. It has run on no
// device yet; see device.Mesh.
type sharding struct {
	mesh    device.Mesh
	devices *distributed.DeviceMesh
	weights []device.Sharding // in the order of qwen3.Config.Tensors
}

// newSharding checks the mesh against the network and the opened backend. It is nil
// for a mesh of one device.
func newSharding(cfg Config, backend compute.Backend) (*sharding, error) {
	if !cfg.Mesh.Several() {
		return nil, nil
	}
	if n := backend.NumDevices(); n < cfg.Mesh.NumDevices() {
		return nil, fmt.Errorf("mesh %v: %d devices, the backend %s drives %d: %w", cfg.Mesh, cfg.Mesh.NumDevices(), cfg.Backend, n, device.ErrNoDevice)
	}
	weights, err := device.Shardings(cfg.Network, cfg.Mesh)
	if err != nil {
		return nil, fmt.Errorf("mesh %v: %w", cfg.Mesh, err)
	}
	devices, err := cfg.Mesh.Device()
	if err != nil {
		return nil, err
	}
	return &sharding{mesh: cfg.Mesh, devices: devices, weights: weights}, nil
}

// ofInput is how input i of a program is dealt: a gradient as its weight is, what
// has a value per row or token by rows, and numbers not at all.
func (s *sharding) ofInput(p Program, i int, dims []int, trained []qwen3.TensorSpec) (device.Sharding, error) {
	first := len(dims) // of the gradients among the inputs
	switch p.Kind {
	case Add:
		first = 0
	case Apply:
		first = 1 // after the optimizer's numbers
	case Score, Reference, Gradient, Update, Copy:
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

// placeVariables assigns a sharding to each variable of a store that has none yet.
func (s *sharding) placeVariables(store *model.Store) error {
	for _, path := range []func(string) string{qwen3.VariablePath, optimizer.FirstMomentPath, optimizer.SecondMomentPath} {
		var unplaced []device.Sharding
		for _, w := range s.weights {
			if v := store.GetVariable(path(w.Name)); v != nil && v.ShardingSpec() == nil {
				unplaced = append(unplaced, w)
			}
		}
		if err := device.Place(store, unplaced, s.mesh, path); err != nil {
			return err
		}
	}
	return nil
}

// callSharded is Call on several devices.
func (p *Passes) callSharded(program Program, args []any) ([]*tensors.Tensor, error) {
	dealt, specs, err := p.sharding.dealInputs(program, args, p.state.Tuning().Trained)
	if err != nil {
		return nil, err
	}
	if err := p.sharding.placeVariables(p.storeOf(program)); err != nil {
		return nil, err
	}
	exec := p.compiled[program]
	if exec == nil {
		if exec, err = p.newExec(program); err != nil {
			return nil, err
		}
		exec.AutoSharding(p.sharding.devices).WithInputShardingSpecs(specs...).SetMaxCache(-1)
		p.compiled[program] = exec
	}
	return executeSharded(program, exec, dealt)
}

// dealInputs cuts the inputs of a program into pieces for the devices.
func (s *sharding) dealInputs(p Program, args []any, trained []qwen3.TensorSpec) (dealt []any, specs []*distributed.ShardingSpec, err error) {
	dealt, specs = make([]any, len(args)), make([]*distributed.ShardingSpec, len(args))
	for i, arg := range args {
		x, ok := arg.(*tensors.Tensor)
		if !ok {
			return nil, nil, fmt.Errorf("%s: input %d is a %T, want a tensor", p, i, arg)
		}
		of, err := s.ofInput(p, i, x.Shape().Dimensions, trained)
		if err != nil {
			return nil, nil, err
		}
		if specs[i], err = of.Spec(s.devices); err != nil {
			return nil, nil, err
		}
		if dealt[i], err = dtensor.ShardTensor(specs[i], x); err != nil {
			return nil, nil, fmt.Errorf("%s: input %d: %w", p, i, err)
		}
	}
	return dealt, specs, nil
}

// executeSharded calls a program on all devices and merges what they yield.
func executeSharded(program Program, exec *model.Exec, dealt []any) ([]*tensors.Tensor, error) {
	var out []*tensors.Tensor
	err := guard(program.String(), func() error {
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
