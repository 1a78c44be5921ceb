package engine

import (
	"fmt"
	"runtime/debug"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/cpu/kernels"
	"temper/trainer/model"
	"temper/trainer/model/graphs"
	"temper/trainer/xla/decodeloop"
)

// device is the model on one backend: weights, caches, the step graph. One goroutine owns it.
type device struct {
	backend compute.Backend
	kernels kernels.Choice
	cfg     model.Config
	store   *ml.Store
	exec    *ml.Exec // returns tokens and log-probabilities
	full    *ml.Exec // also returns the logits
	copies  *ml.Exec // copies blocks of the caches
	blocks  int      // of the caches; the padding of a step is written behind them
	length  int      // most tokens of a sequence
	width   int      // of the tables
	gather  bool     // attention cannot read tables
	caches  []*tensors.Tensor
	// native makes the passes without a graph if its results have the same bits; else nil.
	native *native
	// ahead makes several tokens of each request in one call, without a graph here; nil when
	// a pass makes one token.
	ahead *decodeloop.Device
}

// newDevice builds the step graphs around an empty store, with caches of a number of blocks,
// for sequences of at most length tokens.
func newDevice(backend compute.Backend, cfg model.Config, blocks, length int) (*device, error) {
	d := &device{backend: backend, cfg: cfg, store: ml.NewStore(), blocks: blocks, length: length,
		width: graphs.TableWidth(length), gather: backend.String() != "go"}
	for _, e := range []struct {
		exec  **ml.Exec
		graph func(*ml.Scope, []*graph.Node) []*graph.Node
	}{
		{&d.exec, func(scope *ml.Scope, in []*graph.Node) []*graph.Node { return d.stepGraph(scope, in)[1:] }},
		{&d.full, d.stepGraph},
		{&d.copies, copyGraph},
	} {
		exec, err := ml.NewExec(backend, d.store, e.graph)
		if err != nil {
			return nil, fmt.Errorf("build engine step: %w", err)
		}
		*e.exec = exec.SetMaxCache(-1)
	}
	d.reset()
	return d, nil
}

// stepGraph is one pass over the tokens of a step. Inputs: int32 [5, N] (tokens, rows,
// columns, positions, answers), int32 [2, C, N] (queries, lengths), float32 [3, N]
// (uniform, scale, greedy), float32 [N, 1, W] (tables), caches. Outputs: the logits after
// each of the N, the token that follows it, its log-probability, the new caches.
func (d *device) stepGraph(scope *ml.Scope, in []*graph.Node) []*graph.Node {
	scope.SetTraining(in[0].Graph(), true) // weights are inputs, not constants
	part := func(n *graph.Node, i int) *graph.Node {
		return graph.Squeeze(graph.SliceAxis(n, 0, graph.AxisElem(i)), 0)
	}
	hidden, caches := graphs.DecodeStep(scope, d.cfg, graphs.DecodeInputs{
		Tokens: part(in[0], 0), Rows: part(in[0], 1), Columns: part(in[0], 2), Positions: part(in[0], 3), Answers: part(in[0], 4),
		Queries: part(in[1], 0), Lengths: part(in[1], 1), Tables: in[3], MaxContext: d.length, Gather: d.gather,
	}, in[4:])
	logits := graphs.DecodeLogits(scope, d.cfg, hidden)
	tokens, logprobs := sample(logits, d.cfg.VocabSize,
		sampling{uniform: part(in[2], 0), scale: part(in[2], 1), greedy: part(in[2], 2)})
	return append([]*graph.Node{logits, tokens, logprobs}, caches...)
}

// copyGraph copies places of the caches. Inputs: int32 [M, 2] (from, each a row and a
// column), int32 [M, 2] (to), caches. Outputs: the new caches.
func copyGraph(_ *ml.Scope, in []*graph.Node) []*graph.Node {
	return graphs.CopyPlaces(in[0], in[1], in[2:])
}

// load replaces the weights. The content of the caches is invalid afterwards.
func (d *device) load(s *swap) error {
	if d.native != nil {
		d.native.pass.Use(s.net)
		return nil
	}
	if d.ahead != nil {
		return d.ahead.Load(s.weights)
	}
	defer kernels.Enter(d.kernels)() // kernels decide the depth of the panels of weights
	return guard(func() error { return graphs.ImportDecode(d.store, d.cfg, s.named) })
}

// reset replaces the caches by empty ones.
func (d *device) reset() {
	for _, c := range d.caches {
		_ = c.FinalizeAll() // a cache that a failed step consumed has nothing left to free
	}
	if d.caches = nil; d.native != nil {
		return
	}
	if d.ahead != nil {
		_ = d.ahead.Reset() // the next call reports an error of the device
		return
	}
	d.caches = make([]*tensors.Tensor, 2*d.cfg.NumHiddenLayers)
	for i := range d.caches {
		d.caches[i] = tensors.FromShape(graphs.CacheShape(d.cfg, d.padding()+maxRows, d.width))
	}
}

// padding is the first place after the blocks.
func (d *device) padding() int { return d.blocks * blockTokens }

// newStep allocates the buffers of a shape.
func (d *device) newStep(sh shape) *step {
	if d.native != nil {
		return newNativeStep(sh.n)
	}
	return newStep(sh, d.width)
}

// execute makes the device pass of a step and fills the step's outputs. After an
// error the caches are lost: call reset.
func (d *device) execute(s *step) error {
	if d.native != nil {
		return d.native.execute(s, d.cfg.PaddedVocab())
	}
	return guard(func() error {
		exec, outputs := d.exec, 2
		if s.wantLogits {
			exec, outputs = d.full, 3
		}
		out, err := d.call(exec, outputs,
			tensors.FromFlatDataAndDimensions(s.ints, 5, s.n),
			tensors.FromFlatDataAndDimensions(s.attention, 2, s.chunk, s.n),
			tensors.FromFlatDataAndDimensions(s.floats, 3, s.n),
			tensors.FromFlatDataAndDimensions(s.tables, s.n, 1, s.width),
		)
		if err != nil {
			return fmt.Errorf("engine step: %w", err)
		}
		if s.wantLogits {
			tensors.MustConstFlatData(out[0], func(flat []float32) { s.logits = append(s.logits[:0], flat...) })
		}
		tensors.MustConstFlatData(out[outputs-2], func(flat []int32) { copy(s.sampled, flat) })
		tensors.MustConstFlatData(out[outputs-1], func(flat []float32) { copy(s.logprobs, flat) })
		for _, t := range out {
			t.MustFinalizeAll()
		}
		return nil
	})
}

// blockCopy copies the first n tokens of a block to another one.
type blockCopy struct {
	from, to int32
	n        int
}

// copyTokens copies keys and values between blocks. After an error the caches are lost:
// call reset.
func (d *device) copyTokens(copies []blockCopy) error {
	if d.native != nil {
		d.native.copyTokens(copies)
		return nil
	}
	if d.ahead != nil {
		return d.ahead.Copy(movesOf(copies))
	}
	return guard(func() error {
		var from, to []int
		for _, c := range copies {
			for i := range c.n {
				from, to = append(from, int(c.from)*blockTokens+i), append(to, int(c.to)*blockTokens+i)
			}
		}
		for at := 0; at < len(from); at += maxRows {
			end := min(at+maxRows, len(from))
			if _, err := d.call(d.copies, 0, d.places(from[at:end]), d.places(to[at:end])); err != nil {
				return fmt.Errorf("copy keys and values: %w", err)
			}
		}
		return nil
	})
}

// places returns the rows and columns of at most maxRows places, padded.
func (d *device) places(at []int) *tensors.Tensor {
	flat := make([]int32, 2*maxRows)
	for i := range maxRows {
		place := d.padding() + i
		if i < len(at) {
			place = at[i]
		}
		flat[2*i], flat[2*i+1] = int32(place/d.width), int32(place%d.width)
	}
	return tensors.FromFlatDataAndDimensions(flat, maxRows, 2)
}

// call executes a graph, built at the first call with each shape, with the inputs and the
// caches, which it replaces. It returns the outputs before the caches.
func (d *device) call(exec *ml.Exec, outputs int, inputs ...*tensors.Tensor) ([]*tensors.Tensor, error) {
	defer kernels.Enter(d.kernels)()
	args := make([]any, 0, len(inputs)+len(d.caches))
	for _, in := range inputs {
		args = append(args, in)
	}
	for _, cache := range d.caches {
		donated, err := graph.DonateTensorBuffer(cache, d.backend, 0)
		if err != nil {
			return nil, fmt.Errorf("donate cache: %w", err)
		}
		args = append(args, donated)
	}
	out, err := exec.Call(args...)
	if err != nil {
		return nil, err
	}
	d.caches = out[outputs:]
	for _, in := range inputs {
		in.MustFinalizeAll()
	}
	return out[:outputs], nil
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
