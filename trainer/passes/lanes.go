package passes

import (
	"context"

	"github.com/gomlx/gomlx/ml/model"

	"temper/trainer/device"
	"temper/trainer/packing"
)

// Inputs returns the inputs of the pass over a microbatch.
type Inputs func(packing.Microbatch) []any

// Collect receives the results of the pass over a microbatch. It owns the values.
type Collect func(packing.Microbatch, []device.Value) error

// Each runs a program on the microbatches, several at the same time, and calls
// collect with their results in the order of the microbatches. A sum over them therefore
// depends neither on the number of lanes nor on their speed. Each starts no pass after an
// error, and returns the first error.
func (p *Passes) Each(ctx context.Context, program Program, micros []packing.Microbatch, inputs Inputs, collect Collect) error {
	if p.sharding != nil {
		return p.oneByOne(ctx, program, micros, inputs, collect)
	}
	p.forgetStale()
	lanes, err := p.numLanes(micros)
	if err != nil {
		return err
	}
	exec, err := p.compile(program)
	if err != nil {
		return err
	}
	if lanes > 1 {
		p.helpers.Rest()
		defer p.helpers.Work()
	}
	l := launcher{passes: p, program: program, exec: exec, micros: micros, inputs: inputs, results: make([]chan result, len(micros))}
	if l.dispatcher = p.newDispatcher(program, len(micros), lanes); l.dispatcher != nil {
		lanes += l.dispatcher.numRemote
		defer l.dispatcher.start(ctx)()
	}
	if err := l.collectAll(ctx, lanes, collect); err != nil {
		p.state.Verify()
		return err
	}
	return nil
}

// launcher runs a program on microbatches in goroutines.
type launcher struct {
	passes     *Passes
	program    Program
	exec       *model.Exec
	micros     []packing.Microbatch
	inputs     Inputs
	results    []chan result // one for each started pass, buffered
	started    int
	dispatcher *dispatcher // nil when this process makes all passes
}

// result is the outcome of a pass.
type result struct {
	out []device.Value
	err error
}

// collectAll makes all passes, on a number of lanes, and waits for each started pass, also
// after an error.
func (l *launcher) collectAll(ctx context.Context, lanes int, collect Collect) error {
	err := l.startUpTo(ctx, lanes)
	for i := 0; i < l.started; i++ {
		r := <-l.results[i]
		if err == nil && r.err == nil {
			err = l.startUpTo(ctx, i+1+lanes) // before collect, so that no core idles
		}
		switch {
		case err != nil:
			device.Release(r.out...)
		case r.err != nil:
			err = r.err
		default:
			err = collect(l.micros[i], r.out)
		}
	}
	return err
}

// startUpTo starts passes until n were started in all.
func (l *launcher) startUpTo(ctx context.Context, n int) error {
	for l.started < min(n, len(l.micros)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.launch(ctx)
	}
	return nil
}

// launch starts the next pass.
func (l *launcher) launch(ctx context.Context) {
	mb, done := l.micros[l.started], make(chan result, 1)
	l.passes.graphs[graphKey{l.program, mb.Shape}] = true
	args := l.inputs(mb)
	l.results[l.started] = done
	l.started++
	go func() {
		here := func() ([]device.Value, error) { return l.passes.execute(l.program, l.exec, args) }
		if l.dispatcher == nil {
			out, err := here()
			done <- result{out, err}
			return
		}
		out, err := l.dispatcher.make(ctx, here, func(lane Lane) ([]device.Value, error) { return lane.Make(ctx, l.program, mb.Shape, args) })
		done <- result{out, err}
	}()
}

// oneByOne is Each on a mesh, whose devices share the work of each pass.
func (p *Passes) oneByOne(ctx context.Context, program Program, micros []packing.Microbatch, inputs Inputs, collect Collect) error {
	for _, mb := range micros {
		if err := ctx.Err(); err != nil {
			return err
		}
		out, err := p.Call(program, mb.Shape, inputs(mb)...)
		if err == nil {
			err = collect(mb, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
