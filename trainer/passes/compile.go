package passes

import (
	"errors"
	"fmt"

	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/model/graphs"
	"temper/trainer/optimizer"
	"temper/trainer/packing"
	"temper/trainer/passes/inputs"
)

// Outline is an update of a policy in one pass, without values.
type Outline struct {
	Backend string
	Model   model.Config
	Mesh    device.Mesh
	// Rows of Length tokens of one data replica.
	Rows, Length  int
	Packed, Remat bool
	// Compute is float32 or bfloat16.
	Compute string
	// LogitsChunk is the number of vocabulary entries scored at a time; 0 is all.
	LogitsChunk int
}

// CompileUpdate compiles an update and returns the compiler's report on the memory of one
// device. It makes no weights: the network may be larger than this machine. Only XLA reports.
// The CPU plugin, unless this process has opened it before, is configured to order a program of
// short rows by memory, as plugins of GPUs do. The graph of long rows states their order, and
// needs more memory in that order than in the plugin's.
func CompileUpdate(u Outline) (device.CompiledMemory, error) {
	if u.Length < graphs.LongCompiledRow {
		device.OrderByMemory(u.Backend)
	}
	adam := config.Optimizer{LR: 1e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, MaxGradNorm: 1, Schedule: config.ScheduleConstant}
	rows := u.Rows * max(1, u.Mesh.Data)
	cfg := Config{
		Backend: u.Backend, Network: u.Model, Temperature: 1,
		Options: graphs.Options{Remat: u.Remat, Compute: dtypes.Float32},
		Loss:    config.Loss{ClipLow: 0.2, ClipHigh: 0.28, MaxLogits: u.LogitsChunk * rows * u.Length},
	}
	if u.Compute == "bfloat16" {
		cfg.Options.Compute = dtypes.BFloat16
	}
	if u.Mesh.Several() {
		cfg.Mesh = u.Mesh
	}
	s, err := optimizer.Outline(cfg.Network, adam)
	if err != nil {
		return device.CompiledMemory{}, err
	}
	defer s.Close()
	p, err := Open(cfg, s, optimizer.NewReference(cfg.Network))
	if err != nil {
		return device.CompiledMemory{}, err
	}
	defer p.Close()
	return p.memoryOfUpdate(fullRows(rows, u.Length, u.Packed), adam)
}

// fullRows returns a microbatch without padding.
func fullRows(rows, length int, packed bool) packing.Microbatch {
	mb := packing.Microbatch{Shape: packing.Shape{Rows: rows, Length: length}, Packed: packed}
	sample := &rl.Sample{Tokens: make([]int32, length+1), LossMask: make([]bool, length+1)}
	for i := range rows {
		mb.Members, mb.Starts = append(mb.Members, &packing.Row{Sample: sample, Index: i, Length: length}), append(mb.Starts, i*length)
	}
	return mb
}

// memoryOfUpdate compiles the update over a microbatch and returns its memory.
func (p *Passes) memoryOfUpdate(mb packing.Microbatch, o config.Optimizer) (device.CompiledMemory, error) {
	program := Program{Policy, Update}
	args := append(inputs.Policy(mb, 1, inputs.ExtrasOf(p.cfg.Loss)), optimizer.Numbers(o, o.LR, 1))
	var compiled *graph.Graph
	err := guard(program.String(), func() error {
		exec, operands, err := p.prepare(program, args)
		if err != nil {
			return err
		}
		compiled, err = exec.Compile(operands...)
		return err
	})
	if err != nil {
		return device.CompiledMemory{}, err
	}
	m, ok, err := device.MemoryOf(compiled)
	if err == nil && !ok {
		err = errors.New("only XLA's compiler says how much memory a program needs")
	}
	if err != nil {
		return m, fmt.Errorf("backend %s: %w", p.cfg.Backend, err)
	}
	return m, nil
}

// prepare returns the executor of a program, and the shapes of its inputs, starting with the
// first device.
func (p *Passes) prepare(program Program, args []any) (*ml.Exec, []shapes.Shape, error) {
	perDevice := [][]any{args}
	var exec *ml.Exec
	var err error
	if s := p.sharding; s == nil {
		exec, err = p.compile(program)
	} else {
		trained := p.state.Tuning().Trained
		var specs []*distributed.ShardingSpec
		if perDevice, specs, err = s.dealInputs(program, args, trained); err != nil {
			return nil, nil, err
		}
		exec, err = p.compileSharded(program, specs, s.ofOutputs(program, p.cfg.entropies(), trained))
	}
	var operands []shapes.Shape
	for _, of := range perDevice {
		for _, x := range of {
			if t, ok := x.(*tensors.Tensor); ok {
				operands = append(operands, t.Shape())
			}
		}
	}
	return exec, operands, err
}
