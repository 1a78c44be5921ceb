package decodeloop

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/device"
)

// kind is the kind of a program.
type kind int

const (
	prefill kind = iota
	decode
	decodeLogits
	copying
)

// size names a program: its kind, the number of rows, the number of tokens of each, and the
// number of tokens of their contexts.
type size struct {
	kind                kind
	rows, chunk, length int
}

// columns is the width of the control array.
func (s size) columns() int {
	blocks := s.length/BlockTokens + spread(s.chunk)
	switch s.kind {
	case prefill:
		return prefillColumns + s.chunk + blocks
	case copying:
		return 2
	case decode, decodeLogits:
	}
	return decodeColumns + blocks
}

// compile builds the program of a size.
func (d *Device) compile(s size) (*graph.Graph, error) {
	begin := time.Now()
	g := graph.NewGraph(d.backend, fmt.Sprintf("temper_%d_%d_%d_%d", s.kind, s.rows, s.chunk, s.length))
	err := guard(func() error {
		ctl := graph.Parameter(g, "control", shapes.Make(dtypes.Int32, s.rows, s.columns()))
		cache := graph.Parameter(g, "cache", d.cache.Shape())
		n := network{cfg: d.cfg, weights: map[string]*node{}}
		if s.kind != copying {
			for _, w := range d.weights {
				n.weights[w.name] = graph.Parameter(g, w.name, shapes.Make(dtypes.Float32, w.dims...))
			}
		}
		var out []*node
		switch s.kind {
		case prefill:
			out = []*node{prefiller{n, s.rows, s.chunk, s.length}.build(cache, ctl)}
		case copying:
			out = []*node{copyBlocks(cache, ctl)}
		case decode, decodeLogits:
			out = decoder{n, s.rows, s.length, s.chunk}.build(cache, ctl, s.kind == decodeLogits)
		}
		if err := device.InPlace(g, []device.Alias{{Input: 1, Output: len(out) - 1}}); err != nil {
			return err
		}
		return g.Compile(out...)
	})
	if err != nil {
		return nil, fmt.Errorf("compile for the device: %w", err)
	}
	d.counts.Programs++
	d.counts.Compiling += time.Since(begin)
	return g, nil
}

// run calls the program of a size with a control array, and keeps the new cache. After an
// error the cache is lost.
func (d *Device) run(s size, ctl []int32) ([]*tensors.Tensor, error) {
	g, ok := d.programs[s]
	if !ok {
		var err error
		if g, err = d.compile(s); err != nil {
			return nil, err
		}
		d.programs[s] = g
	}
	var out []*tensors.Tensor
	err := guard(func() error {
		in := tensors.FromFlatDataAndDimensions(ctl, s.rows, s.columns())
		cache, err := graph.DonateTensorBuffer(d.cache, d.backend, 0)
		if err != nil {
			return fmt.Errorf("donate cache: %w", err)
		}
		args := make([]any, 0, 2+len(d.values))
		args = append(args, in, cache)
		if s.kind != copying {
			for _, v := range d.values {
				args = append(args, v)
			}
		}
		d.counts.up(4 * len(ctl))
		d.counts.Calls++
		begin := time.Now()
		out = g.Run(args...)
		d.counts.Device += time.Since(begin)
		in.MustFinalizeAll()
		d.cache, out = out[len(out)-1], out[:len(out)-1]
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("run on the device: %w", err)
	}
	return out, nil
}

// guard turns a panic of graph building or of the backend into an error with its stack.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in the compute backend: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
