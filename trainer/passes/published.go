package passes

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
	"temper/trainer/model/graphs"
	"temper/trainer/optimizer"
	"temper/trainer/weights/tensor"
)

// Publisher copies weights to the host for publication. Its methods must not be called
// concurrently.
type Publisher struct {
	cfg     Config
	state   *optimizer.State
	backend compute.Backend // of the passes
	// exec merges adapters into weights; the first merge makes it. own is its backend if that
	// is not the backend of the passes.
	exec *graph.Exec
	own  compute.Backend
}

// Weight copies a weight to the host, with its adapters if it has some. On the Go backend it
// has the bits that passes compute with.
func (p *Publisher) Weight(name string) (tensor.Named, error) {
	weight, err := p.state.Weight(name)
	nameA, nameB, adapted := p.cfg.Network.AdaptersOf(name)
	if err != nil || !adapted {
		return weight, err
	}
	a, err := p.state.Weight(nameA)
	if err != nil {
		return tensor.Named{}, err
	}
	b, err := p.state.Weight(nameB)
	if err != nil {
		return tensor.Named{}, err
	}
	if weight.Data, err = p.merge(weight, a, b); err != nil {
		return tensor.Named{}, fmt.Errorf("merge the adapters of %s: %w", name, err)
	}
	return weight, nil
}

// merge adds adapters to a weight, all of them on the host.
func (p *Publisher) merge(weight, a, b tensor.Named) ([]float32, error) {
	if err := p.open(); err != nil {
		return nil, err
	}
	defer kernels.Enter(p.cfg.Kernels)()
	var in []any
	for _, t := range []tensor.Named{weight, a, b} {
		x := tensors.FromFlatDataAndDimensions(t.Data, t.Shape...)
		defer device.Free(x)
		in = append(in, x)
	}
	var out []*tensors.Tensor
	if err := guard("merge", func() (err error) {
		out, err = p.exec.Call(in...)
		return err
	}); err != nil {
		return nil, err
	}
	defer device.Free(out[0])
	return tensors.CopyFlatData[float32](out[0])
}

// open makes the executor of merges: on the backend of the passes if that is the Go backend,
// else on a separate one.
func (p *Publisher) open() error {
	if p.exec != nil {
		return nil
	}
	backend := p.backend
	if !device.Threads(p.cfg.Backend) {
		var err error
		if backend, err = device.Open("go"); err != nil {
			return err
		}
		p.own = backend
	}
	var err error
	p.exec, err = graph.NewExec(backend, func(weight, a, b *graph.Node) *graph.Node { return graphs.Merged(p.cfg.Network, weight, a, b) })
	return err
}

// close releases the executor and its backend.
func (p *Publisher) close() {
	if p.exec != nil {
		p.exec.Finalize()
	}
	if p.own != nil {
		p.own.Finalize()
	}
}
