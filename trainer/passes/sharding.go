package passes

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/core/tensors/dtensor"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/device"
	"temper/trainer/loss"
	"temper/trainer/model"
	"temper/trainer/model/graphs"
	"temper/trainer/optimizer"
)

// sharding deals tensors over the devices of a mesh: weights, gradients and moments
// by device.Shardings, the rows of a microbatch over the data axis. The runtime
// partitions the graphs. Weights, moments, gradients and copies of them stay on the
// devices; measures and log-probabilities come back whole.
type sharding struct {
	mesh    device.Mesh
	devices *distributed.DeviceMesh // the only instance: GoMLX compares meshes by their address
	weights []device.Sharding       // in the order of model.Config.Tensors
	byName  map[string]device.Sharding
}

// newSharding checks the mesh against the network and the opened backend. It returns nil for a
// mesh of one device.
func newSharding(cfg Config, backend compute.Backend) (*sharding, error) {
	if !cfg.Mesh.Several() {
		return nil, nil
	}
	if n := backend.NumDevices(); n < cfg.Mesh.NumDevices() {
		return nil, fmt.Errorf("mesh %v: %d devices, the backend %s drives %d: %w", cfg.Mesh, cfg.Mesh.NumDevices(), cfg.Backend, n, device.ErrNoDevice)
	}
	return shardingOver(cfg.Network, cfg.Mesh)
}

// shardingOver deals a network over a mesh.
func shardingOver(network model.Config, mesh device.Mesh) (*sharding, error) {
	weights, err := device.Shardings(network, mesh)
	if err != nil {
		return nil, fmt.Errorf("mesh %v: %w", mesh, err)
	}
	devices, err := mesh.Device()
	if err != nil {
		return nil, err
	}
	s := &sharding{mesh: mesh, devices: devices, weights: weights, byName: map[string]device.Sharding{}}
	for _, w := range weights {
		s.byName[w.Name] = w
	}
	return s, nil
}

// ofInput returns the sharding of input i of a program: gradients like their weights, values
// of rows or tokens by rows, and numbers not at all.
func (s *sharding) ofInput(p Program, i int, dims []int, trained []model.TensorSpec) (device.Sharding, error) {
	first := len(dims) // index of the first gradient among the inputs
	switch p.Kind {
	case Add:
		first = 0
	case Apply:
		first = 1 // after the optimizer's numbers
	case Score, Reference, Gradient, Update, Copy:
		if len(dims) >= 2 {
			return device.RowSharding(s.mesh, dims)
		}
		return device.Everywhere(dims), nil
	}
	if i < first {
		return device.Everywhere(dims), nil
	}
	return s.byName[trained[(i-first)%len(trained)].Name], nil
}

// output is the sharding of a result of a program, and whether it stays on the devices.
type output struct {
	device.Sharding
	stays bool
}

// ofOutputs returns the shardings of the results of a program, after the variables that it
// changes.
func (s *sharding) ofOutputs(p Program, entropy bool, trained []model.TensorSpec) []output {
	rows := output{Sharding: device.Sharding{Name: "batch", Axes: []string{device.AxisData, ""}}}
	number := output{Sharding: device.Everywhere(nil)}
	measures := output{Sharding: device.Everywhere([]int{int(loss.NumMeasures)})}
	var weights []output
	for _, t := range trained {
		weights = append(weights, output{s.byName[t.Name], true})
	}
	switch p.Kind {
	case Score:
		if entropy {
			return []output{rows, rows}
		}
		return []output{rows}
	case Reference:
		return []output{rows}
	case Gradient:
		return append([]output{measures}, weights...)
	case Update:
		return []output{measures, number}
	case Add:
		return weights
	case Apply:
		return []output{number}
	case Copy: // in the order of optimizer.Variables
		var all []output
		for _, w := range weights {
			all = append(all, w, w, w)
		}
		return all
	}
	panic(fmt.Sprintf("pass %d is not defined", p.Kind))
}

// placeVariables gives each variable of a store the sharding of its weight.
func (s *sharding) placeVariables(store *ml.Store) error {
	for _, path := range []func(string) string{graphs.VariablePath, optimizer.FirstMomentPath, optimizer.SecondMomentPath} {
		var unplaced []device.Sharding
		for _, w := range s.weights {
			if v := store.GetVariable(path(w.Name)); v != nil && !s.isPlaced(v, w) {
				unplaced = append(unplaced, w)
			}
		}
		if err := device.Place(store, unplaced, s.devices, path); err != nil {
			return err
		}
	}
	return nil
}

// isPlaced reports whether a variable has its place. GoMLX places a new one as a copy on every
// device.
func (s *sharding) isPlaced(v *ml.Variable, w device.Sharding) bool {
	spec := v.ShardingSpec()
	if spec == nil || spec.Mesh != s.devices || len(spec.Axes) != len(w.Axes) {
		return false
	}
	for i, axis := range w.Axes {
		if axis == "" && len(spec.Axes[i]) > 0 || axis != "" && (len(spec.Axes[i]) != 1 || spec.Axes[i][0] != axis) {
			return false
		}
	}
	return true
}

// callSharded is Call on a mesh. The program consumes the last inputs, which lie on the
// devices already.
func (p *Passes) callSharded(program Program, args []any, taken []device.Value) ([]device.Value, error) {
	s := p.sharding
	perDevice, inputs, err := s.dealInputs(program, args, p.state.Tuning().Trained)
	if err != nil {
		return nil, err
	}
	for i, v := range taken {
		parts, err := v.Donate(p.backend)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", program, err)
		}
		for d := range perDevice {
			perDevice[d] = append(perDevice[d], parts[d])
		}
		of, err := s.ofInput(program, len(args)+i, nil, p.state.Tuning().Trained)
		if err != nil {
			return nil, err
		}
		spec, err := of.Spec(s.devices)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, spec)
	}
	outputs := s.ofOutputs(program, p.cfg.entropies(), p.state.Tuning().Trained)
	exec, err := p.compileSharded(program, inputs, outputs)
	if err != nil {
		return nil, err
	}
	var flat []any
	for _, of := range perDevice {
		flat = append(flat, of...)
	}
	return s.execute(program, exec, flat, outputs)
}

// compileSharded returns the executor of a program on the mesh. Its first call compiles the
// graph.
func (p *Passes) compileSharded(program Program, inputs []*distributed.ShardingSpec, outputs []output) (*ml.Exec, error) {
	store := p.storeOf(program)
	if err := p.sharding.placeVariables(store); err != nil {
		return nil, err
	}
	if exec := p.compiled[program]; exec != nil {
		return exec, nil
	}
	exec, err := p.newExec(program)
	if err != nil {
		return nil, err
	}
	var specs []*distributed.ShardingSpec
	for _, v := range changed(program, store, optimizer.Variables(store, p.state.Tuning())) {
		specs = append(specs, v.ShardingSpec())
	}
	for _, o := range outputs {
		spec, err := o.Spec(p.sharding.devices)
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	exec.AutoSharding(p.sharding.devices).WithInputShardingSpecs(inputs...).WithOutputShardingSpecs(specs...).SetMaxCache(-1)
	p.compiled[program] = exec
	return exec, nil
}

// changed returns the variables that a program changes, in the order in which GoMLX puts their
// new values before the results.
func changed(program Program, store *ml.Store, trained []*ml.Variable) []*ml.Variable {
	if program.Kind != Update && program.Kind != Apply {
		return nil
	}
	ours := map[*ml.Variable]bool{}
	for _, v := range trained {
		ours[v] = true
	}
	var out []*ml.Variable
	for v := range store.IterVariables() {
		if ours[v] {
			out = append(out, v)
		}
	}
	return out
}

// dealInputs cuts the inputs of a program into pieces for the devices.
func (s *sharding) dealInputs(p Program, args []any, trained []model.TensorSpec) (perDevice [][]any, specs []*distributed.ShardingSpec, err error) {
	perDevice, specs = make([][]any, s.mesh.NumDevices()), make([]*distributed.ShardingSpec, len(args))
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
		pieces, err := dtensor.ShardTensor(specs[i], x)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: input %d: %w", p, i, err)
		}
		for d, piece := range pieces.Shards() {
			perDevice[d] = append(perDevice[d], piece)
		}
	}
	return perDevice, specs, nil
}

// execute calls a program on all devices. The inputs of the first device come first, then the
// inputs of the second, and so on.
func (s *sharding) execute(program Program, exec *ml.Exec, inputs []any, outputs []output) ([]device.Value, error) {
	var out []device.Value
	err := guard(program.String(), func() error {
		flat, err := exec.Call(inputs...)
		if err != nil {
			return err
		}
		if len(flat) != len(outputs)*s.mesh.NumDevices() {
			return fmt.Errorf("%d results on %d devices, want %d of each", len(flat), s.mesh.NumDevices(), len(outputs))
		}
		for i, o := range outputs {
			v, err := s.valueOf(o, flat, i, len(outputs))
			if err != nil {
				return fmt.Errorf("result %d: %w", i, err)
			}
			out = append(out, v)
		}
		return nil
	})
	return out, err
}

// valueOf joins result i of all devices.
func (s *sharding) valueOf(o output, flat []*tensors.Tensor, i, results int) (device.Value, error) {
	spec, err := o.Spec(s.devices)
	if err != nil {
		return device.Value{}, err
	}
	shards := make([]*tensors.Tensor, s.mesh.NumDevices())
	for d := range shards {
		shards[d] = flat[d*results+i]
	}
	pieces, err := dtensor.NewTensor(spec, shards)
	if err != nil {
		return device.Value{}, err
	}
	if v := device.Pieces(pieces); !o.stays {
		return v.Gather()
	}
	return device.Pieces(pieces), nil
}
