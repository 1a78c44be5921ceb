// Package passes owns the device: it builds and compiles the graphs of training and calls
// them, one after another, concurrently, or over the devices of a mesh. A pass is one call.
// Only a program changes the weights. The package decides neither the passes of a step
// nor the meaning of their results.
//
// Invariant: the results of a pass depend on its program, its inputs and the state, not on
// concurrent or earlier passes.
//
// Axes in comments: B rows of a microbatch, T tokens of a row.
package passes

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/internal/config"
	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/model/graphs"
	"temper/trainer/optimizer"
	"temper/trainer/packing"
)

// Config of the passes; trainer.Config explains each field.
type Config struct {
	Backend string
	Kernels kernels.Choice
	Mesh    device.Mesh
	Network model.Config
	Options graphs.Options
	Loss    config.Loss
	// Entropies makes the scoring program yield entropies, as a loss that selects by them
	// does.
	Entropies   bool
	Temperature float64
	Lanes       int
	Memory      Memory
	// Remote makes passes in other processes; nil makes all passes in this one.
	Remote RemotePasses
}

// entropies reports whether the scoring program yields them.
func (c *Config) entropies() bool { return c.Entropies || c.Loss.EntropyFraction > 0 }

// Passes calls the programs of one state on one backend. Its methods must not be called
// concurrently.
type Passes struct {
	cfg       Config
	backend   compute.Backend
	helpers   device.Helpers // of the backend
	sharding  *sharding      // over a mesh; nil for one device
	state     *optimizer.State
	reference *optimizer.Reference
	builder   builder
	compiled  map[Program]*ml.Exec
	graphs    map[graphKey]bool // compiled graphs
	layout    int               // of the state, for which the update programs were compiled
	// Publisher reads the weights of the state.
	Publisher *Publisher
}

// graphKey identifies a compiled graph.
type graphKey struct {
	program Program
	shape   packing.Shape
}

// Open opens the device.
func Open(cfg Config, s *optimizer.State, reference *optimizer.Reference) (*Passes, error) {
	var backend compute.Backend
	err := guard("backend "+cfg.Backend, func() (err error) {
		backend, err = device.Open(device.InOrder(cfg.Backend))
		return err
	})
	if err != nil {
		return nil, err
	}
	sharding, err := newSharding(cfg, backend)
	if err != nil {
		backend.Finalize()
		return nil, err
	}
	if sharding == nil && backend.HasSharedBuffers() {
		optimizer.PlaceOn(backend, s, reference)
	}
	return &Passes{
		cfg: cfg, backend: backend, helpers: device.HelpersOf(backend), sharding: sharding,
		state: s, reference: reference, builder: newBuilder(cfg, s, sharding),
		compiled: map[Program]*ml.Exec{}, graphs: map[graphKey]bool{}, Publisher: &Publisher{cfg: cfg, state: s, backend: backend},
	}, nil
}

// Close releases the device. Close the state and the reference, whose variables lie on it,
// before.
func (p *Passes) Close() {
	for _, exec := range p.compiled {
		exec.Finalize()
	}
	p.compiled = nil
	p.Publisher.close()
	p.backend.Finalize()
}

// NumGraphs returns the number of graphs compiled for the present layout of the state.
func (p *Passes) NumGraphs() int { return len(p.graphs) }

// MaxGraphs bounds NumGraphs for a number of shapes of microbatches: each kind of pass over a
// microbatch for two objectives, and the three other kinds once.
func MaxGraphs(shapes int) int { return 2*int(Add)*shapes + 3 }

// Savepoint copies the variables that an update changes, on the device.
func (p *Passes) Savepoint() (*optimizer.Savepoint, error) {
	nothing := tensors.FromScalar(float32(0))
	defer device.Free(nothing)
	copies, err := p.Call(Program{Kind: Copy}, packing.Shape{}, nothing)
	if err != nil {
		return nil, err
	}
	return p.state.Savepoint(copies), nil
}

// Call makes one pass with inputs of a shape; programs without a microbatch have the zero
// shape. The caller owns the results.
func (p *Passes) Call(program Program, shape packing.Shape, args ...any) ([]device.Value, error) {
	p.forgetStale()
	p.graphs[graphKey{program, shape}] = true
	p.noteChange(program)
	var out []device.Value
	var err error
	if p.sharding != nil {
		out, err = p.callSharded(program, args, nil)
	} else {
		out, err = p.callWhole(program, args)
	}
	if err != nil {
		p.state.Verify()
		return nil, err
	}
	return out, nil
}

// Donate is Call for a program without a microbatch. It consumes the last inputs, whose
// memory can hold the results.
func (p *Passes) Donate(program Program, args []any, taken []device.Value) ([]device.Value, error) {
	p.forgetStale()
	p.graphs[graphKey{program: program}] = true
	p.noteChange(program)
	var out []device.Value
	var err error
	if p.sharding != nil {
		out, err = p.callSharded(program, args, taken)
	} else {
		for _, x := range taken {
			d, err := x.Donate(p.backend)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", program, err)
			}
			args = append(args, d...)
		}
		out, err = p.callWhole(program, args)
	}
	if err != nil {
		p.state.Verify()
		return nil, err
	}
	return out, nil
}

// noteChange increases the revision before a program changes weights.
func (p *Passes) noteChange(program Program) {
	if program.Kind == Update || program.Kind == Apply {
		p.state.Revision++
	}
}

// callWhole is Call on one device.
func (p *Passes) callWhole(program Program, args []any) ([]device.Value, error) {
	exec, err := p.compile(program)
	if err != nil {
		return nil, err
	}
	return p.execute(program, exec, args)
}

// compile returns the executor of a program on one device. Its first call compiles the graph.
func (p *Passes) compile(program Program) (*ml.Exec, error) {
	if exec := p.compiled[program]; exec != nil {
		return exec, nil
	}
	exec, err := p.newExec(program)
	if err != nil {
		return nil, err
	}
	exec.SetMaxCache(-1) // otherwise GoMLX refuses the 33rd shape
	p.compiled[program] = exec
	return exec, nil
}

func (p *Passes) newExec(program Program) (*ml.Exec, error) {
	exec, err := ml.NewExec(p.backend, p.storeOf(program), p.builder.build(program))
	if err != nil {
		return nil, &GraphError{Op: program.String(), Err: err}
	}
	return exec, nil
}

// storeOf returns the store of the weights that a program reads.
func (p *Passes) storeOf(program Program) *ml.Store {
	if program.Kind == Reference {
		return p.reference.Store()
	}
	return p.state.Store()
}

// forgetStale drops the programs that read or write moments when the state has other moments
// than those that they were compiled for.
func (p *Passes) forgetStale() {
	if p.layout == p.state.Layout() {
		return
	}
	p.layout = p.state.Layout()
	for program, exec := range p.compiled {
		if program.Kind != Score {
			exec.Finalize()
			delete(p.compiled, program)
		}
	}
	for key := range p.graphs {
		if key.program.Kind != Score {
			delete(p.graphs, key)
		}
	}
}

// execute calls a program. It may be called concurrently unless the program changes weights.
func (p *Passes) execute(program Program, exec *ml.Exec, args []any) ([]device.Value, error) {
	defer kernels.Enter(p.cfg.Kernels)()
	var out []*tensors.Tensor
	err := guard(program.String(), func() (err error) {
		out, err = exec.Call(args...)
		return err
	})
	return device.Wholes(out), err
}
