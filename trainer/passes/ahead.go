package passes

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"golang.org/x/sync/errgroup"

	"temper/trainer/device"
	"temper/trainer/optimizer"
	"temper/trainer/packing"
	"temper/trainer/passes/inputs"
)

// GraphSpec identifies a graph: a program and the shape of its microbatches, zero for
// programs without one.
type GraphSpec struct {
	Program Program
	Shape   packing.Shape
	Packed  bool
}

// maxCompiling bounds the concurrent compilations. Each has several threads and takes
// memory.
const maxCompiling = 4

// Prepare compiles graphs of p that are about to be called, several at a time. It skips
// compiled ones. log gets a line for each; nil is silent.
func Prepare(ctx context.Context, p *Passes, graphs []GraphSpec, log *slog.Logger) error {
	p.forgetStale()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var todo []graphToCompile
	for _, w := range graphs {
		key := graphKey{w.Program, w.Shape}
		if p.graphs[key] {
			continue
		}
		exec, operands, err := outline(p, w)
		if err != nil {
			return err
		}
		todo = append(todo, graphToCompile{GraphSpec: w, exec: exec, inputs: operands})
	}
	if len(todo) == 0 {
		return nil
	}
	begin, before := time.Now(), device.Graphs()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(min(maxCompiling, runtime.GOMAXPROCS(0)))
	var mu sync.Mutex
	for _, t := range todo {
		g.Go(func() error {
			took, err := t.compile(ctx)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			p.graphs[graphKey{t.Program, t.Shape}] = true
			log.InfoContext(ctx, "program compiled", "program", t.Program.String(), "rows", t.Shape.Rows, "tokens", t.Shape.Length, "duration_ms", took.Milliseconds())
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	n := device.Graphs().Since(before)
	log.Info("programs are ready", "programs", len(todo), "compiled", n.Compiled, "loaded", n.Loaded,
		"compiling_ms", n.Compiling.Milliseconds(), "duration_ms", time.Since(begin).Milliseconds())
	return nil
}

// graphToCompile is a graph with the executor of its program.
type graphToCompile struct {
	GraphSpec
	exec   *model.Exec
	inputs []shapes.Shape
}

func (t graphToCompile) compile(ctx context.Context) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	begin := time.Now()
	err := guard(t.Program.String(), func() error {
		_, err := t.exec.Compile(t.inputs...)
		return err
	})
	return time.Since(begin), err
}

// inputShapes returns the shapes of the inputs of a graph.
func inputShapes(p *Passes, w GraphSpec) []shapes.Shape {
	numbers := shapes.Make(dtypes.Float32, optimizer.NumNumbers)
	var out []shapes.Shape
	weights := func() {
		for _, t := range p.state.Tuning().Trained {
			out = append(out, shapes.Make(dtypes.Float32, t.Shape...))
		}
	}
	switch w.Program.Kind {
	case Add:
		weights()
		weights()
	case Apply:
		out = append(out, numbers)
		weights()
	case Copy:
		out = append(out, shapes.Make(dtypes.Float32))
	case Score, Reference:
		out = shapesOf(inputs.Scoring(fullRows(w.Shape.Rows, w.Shape.Length, w.Packed)))
	case Gradient, Update:
		mb := fullRows(w.Shape.Rows, w.Shape.Length, w.Packed)
		if w.Program.Objective == Supervised {
			out = shapesOf(inputs.Supervised(mb, 1))
		} else {
			out = shapesOf(inputs.Policy(mb, 1, inputs.ExtrasOf(p.cfg.Loss)))
		}
		if w.Program.Kind == Update {
			out = append(out, numbers)
		}
	}
	return out
}

func shapesOf(args []any) []shapes.Shape {
	out := make([]shapes.Shape, len(args))
	for i, x := range args {
		out[i] = x.(*tensors.Tensor).Shape() //nolint:forcetypeassert // package inputs makes tensors only
	}
	return out
}

// outline returns the executor of a graph, and the shapes of its inputs on each device,
// starting with the first device.
func outline(p *Passes, w GraphSpec) (*model.Exec, []shapes.Shape, error) {
	s, program, operands := p.sharding, w.Program, inputShapes(p, w)
	if s == nil {
		exec, err := p.compile(program)
		return exec, operands, err
	}
	trained := p.state.Tuning().Trained
	specs := make([]*distributed.ShardingSpec, len(operands))
	pieces := make([]shapes.Shape, len(operands))
	for i, x := range operands {
		of, err := s.ofInput(program, i, x.Dimensions, trained)
		if err != nil {
			return nil, nil, err
		}
		if specs[i], err = of.Spec(s.devices); err != nil {
			return nil, nil, err
		}
		pieces[i] = shapes.Make(x.DType, of.Shard...)
	}
	exec, err := p.compileSharded(program, specs, s.ofOutputs(program, p.cfg.entropies(), trained))
	var all []shapes.Shape
	for range s.mesh.NumDevices() {
		all = append(all, pieces...)
	}
	return exec, all, err
}
