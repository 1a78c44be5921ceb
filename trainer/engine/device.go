package engine

import (
	"fmt"
	"runtime/debug"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"temper/trainer/kernels"
	"temper/trainer/qwen3"
	"temper/trainer/tensor"
)

// device is the model on one backend: weights, caches, the step graph. It
// belongs to one goroutine.
type device struct {
	backend compute.Backend
	kernels kernels.Choice
	cfg     qwen3.Config
	store   *model.Store
	exec    *model.Exec
	rows    int // cache rows; the last one takes the padding of a step
	length  int // cache length
	caches  []*tensors.Tensor
}

// newDevice builds the step graph around an empty store.
func newDevice(backend compute.Backend, cfg qwen3.Config, slots, length int) (*device, error) {
	d := &device{backend: backend, cfg: cfg, store: model.NewStore(), rows: slots + 1, length: length}
	exec, err := model.NewExec(backend, d.store, func(scope *model.Scope, in []*graph.Node) []*graph.Node {
		return stepGraph(scope, cfg, in)
	})
	if err != nil {
		return nil, fmt.Errorf("build engine step: %w", err)
	}
	d.exec = exec.SetMaxCache(-1)
	d.reset()
	return d, nil
}

// stepGraph is one pass over the tokens of a step. Inputs: int32 [4, N]
// (tokens, rows, positions, answers), int32 [2, C, R] (queries, lengths),
// float32 [3, N] (uniform, scale, greedy), caches. Outputs: the token that
// follows each of the N, its log-probability, the new caches.
func stepGraph(scope *model.Scope, cfg qwen3.Config, in []*graph.Node) []*graph.Node {
	scope.SetTraining(in[0].Graph(), true) // weights are inputs, not constants
	part := func(n *graph.Node, i int) *graph.Node {
		return graph.Squeeze(graph.SliceAxis(n, 0, graph.AxisElem(i)), 0)
	}
	hidden, caches := qwen3.DecodeStep(scope, cfg, qwen3.DecodeInputs{
		Tokens: part(in[0], 0), Rows: part(in[0], 1), Positions: part(in[0], 2), Answers: part(in[0], 3),
		Queries: part(in[1], 0), Lengths: part(in[1], 1),
	}, in[3:])
	tokens, logprobs := sample(qwen3.DecodeLogits(scope, cfg, hidden), cfg.VocabSize,
		sampling{uniform: part(in[2], 0), scale: part(in[2], 1), greedy: part(in[2], 2)})
	return append([]*graph.Node{tokens, logprobs}, caches...)
}

// load replaces the weights. What the caches hold was made with the old ones and is
// of no use afterwards.
func (d *device) load(weights []tensor.Named) error {
	defer kernels.Enter(d.kernels)() // they decide how deep the panels of weights are
	return guard(func() error { return qwen3.ImportDecode(d.store, d.cfg, tensor.ByName(weights)) })
}

// reset replaces the caches by empty ones.
func (d *device) reset() {
	for _, c := range d.caches {
		_ = c.FinalizeAll() // a cache that a failed step consumed has nothing left to free
	}
	d.caches = make([]*tensors.Tensor, 2*d.cfg.NumHiddenLayers)
	for i := range d.caches {
		d.caches[i] = tensors.FromShape(d.cfg.CacheShape(d.rows, d.length))
	}
}

// execute makes the device pass of a step and fills the step's outputs. After an
// error the caches are lost: call reset.
func (d *device) execute(s *step) error {
	return guard(func() error {
		n, c := len(s.uniform), len(s.queries)/d.rows
		args := []any{
			tensors.FromFlatDataAndDimensions(s.ints, 4, n),
			tensors.FromFlatDataAndDimensions(s.attention, 2, c, d.rows),
			tensors.FromFlatDataAndDimensions(s.floats, 3, n),
		}
		for _, cache := range d.caches {
			donated, err := graph.DonateTensorBuffer(cache, d.backend, 0)
			if err != nil {
				return fmt.Errorf("donate cache: %w", err)
			}
			args = append(args, donated)
		}
		out, err := d.call(args)
		if err != nil {
			return fmt.Errorf("engine step: %w", err)
		}
		d.caches = out[2:]
		tensors.MustConstFlatData(out[0], func(flat []int32) { copy(s.sampled, flat) })
		tensors.MustConstFlatData(out[1], func(flat []float32) { copy(s.logprobs, flat) })
		for _, t := range out[:2] {
			t.MustFinalizeAll()
		}
		for _, t := range args[:3] {
			t.(*tensors.Tensor).MustFinalizeAll()
		}
		return nil
	})
}

// call executes the step graph, which is built at its first call with each shape.
func (d *device) call(args []any) ([]*tensors.Tensor, error) {
	defer kernels.Enter(d.kernels)()
	return d.exec.Call(args...)
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
