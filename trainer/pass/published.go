package pass

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/device"
	"temper/trainer/kernels"
	"temper/trainer/qwen3"
	"temper/trainer/tensor"
)

// Published copies a weight to the host as it is published: with its adapters, where it
// has some. On the Go backend it has the bits that passes compute with.
func (p *Passes) Published(name string) (tensor.Named, error) {
	weight, err := p.state.Weight(name)
	if err != nil || !p.cfg.Network.Adapted(name) {
		return weight, err
	}
	nameA, nameB := p.cfg.Network.AdaptersOf(name)
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
func (p *Passes) merge(weight, a, b tensor.Named) ([]float32, error) {
	exec, err := p.merger()
	if err != nil {
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
		out, err = exec.Call(in...)
		return err
	}); err != nil {
		return nil, err
	}
	defer device.Free(out[0])
	return tensors.CopyFlatData[float32](out[0])
}

// merger is what executes merges: on the backend of the passes where that is the Go
// backend, on one of its own elsewhere.
func (p *Passes) merger() (*graph.Exec, error) {
	if p.merges != nil {
		return p.merges, nil
	}
	backend := p.backend
	if !device.Threads(p.cfg.Backend) {
		var err error
		if backend, err = device.Open("go"); err != nil {
			return nil, err
		}
		p.mergeBackend = backend
	}
	exec, err := graph.NewExec(backend, func(weight, a, b *graph.Node) *graph.Node { return qwen3.Merged(p.cfg.Network, weight, a, b) })
	if err != nil {
		return nil, err
	}
	p.merges = exec
	return exec, nil
}

// closeMerger releases what merger made.
func (p *Passes) closeMerger() {
	if p.merges != nil {
		p.merges.Finalize()
	}
	if p.mergeBackend != nil {
		p.mergeBackend.Finalize()
	}
}
