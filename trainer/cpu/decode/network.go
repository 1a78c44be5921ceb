//go:build goexperiment.simd && amd64

package decode

import (
	"errors"
	"fmt"
	"slices"

	"temper/trainer/cpu/kernels"
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
)

// Network holds weights for the products: packed, or where they lie. It is never changed,
// so several passes share it.
type Network struct {
	arithmetic *arithmetic
	cfg        model.Config
	panel      int
	place      bool
	embed      tensor.Stored // [vocabulary, D]
	layers     []model.Layer
	vectors    map[string][]float32 // norms, by name
	products   map[string]product   // by the name of the first of the weights that lie side by side
	head       matrix
}

// product is a matrix with its bias, which may be nil.
type product struct {
	matrix
	bias []float32
}

// Check returns why a network cannot be decoded here with a choice of kernels.
func Check(cfg model.Config, c kernels.Choice) error {
	_, err := arithmeticOf(c)
	errs := []error{err}
	for _, f := range []struct {
		name  string
		value int
	}{{"hidden_size", cfg.HiddenSize}, {"head_dim", cfg.HeadDim}, {"intermediate_size", cfg.IntermediateSize}} {
		if f.value%width != 0 {
			errs = append(errs, fmt.Errorf("%s %d is no multiple of %d", f.name, f.value, width))
		}
	}
	return errors.Join(errs...)
}

// packedBytes bounds the weights that are packed, in float32. Below it a pass is short, and
// to make the tiles of all weights anew would be a large part of it. Above it the weights
// come from memory, which takes longer than that, and two copies would be too many.
const packedBytes = 256 << 20

// LayoutOf is the layout for a network.
func LayoutOf(cfg model.Config) Layout {
	if 4*cfg.NumParameters() > packedBytes {
		return InPlace
	}
	return Packed
}

// NewNetwork makes a network of weights, of which it reports all that are missing or have
// another shape.
func NewNetwork(cfg model.Config, c kernels.Choice, layout Layout, lookup tensor.Lookup) (*Network, error) {
	if err := errors.Join(Check(cfg, c), cfg.CheckStored(lookup)); err != nil {
		return nil, err
	}
	vectors, err := arithmeticOf(c)
	if err != nil {
		return nil, err
	}
	n := &Network{
		arithmetic: vectors, cfg: cfg, panel: kernels.Describe(c).PanelDepth, place: layout == InPlace,
		layers: cfg.Layers(), vectors: map[string][]float32{}, products: map[string]product{},
	}
	n.read(lookup)
	return n, nil
}

// read takes the weights, all of which lookup finds.
func (n *Network) read(lookup tensor.Lookup) {
	find := func(name string) tensor.Stored {
		t, _ := lookup(name)
		return t
	}
	for _, l := range n.layers {
		for _, name := range []string{l.AttnNorm, l.QNorm, l.KNorm, l.MLPNorm} {
			if name != "" {
				n.vectors[name] = slices.Clone(find(name).Values())
			}
		}
		for _, sideBySide := range [][]model.Linear{{l.Q, l.K, l.V}, {l.O}, {l.Gate, l.Up}, {l.Down}} {
			var stored []tensor.Stored
			var bias []float32
			columns := 0
			for _, linear := range sideBySide {
				stored = append(stored, find(linear.Weight))
				if columns += linear.Out; linear.Bias != "" {
					bias = append(bias, find(linear.Bias).Values()...)
				}
			}
			first := sideBySide[0]
			n.products[first.Weight] = product{newMatrix(n.arithmetic, first.In, columns, n.place, stored...), bias}
		}
	}
	n.vectors[model.NameNorm] = slices.Clone(find(model.NameNorm).Values())
	n.embed = find(model.NameEmbed)
	n.head = newMatrix(n.arithmetic, n.cfg.HiddenSize, n.cfg.PaddedVocab(), n.place, find(n.cfg.HeadName()))
	if !n.place {
		n.embed = tensor.Stored{Name: n.embed.Name, Shape: n.embed.Shape, Float32: slices.Clone(n.embed.Values())}
	}
}

// InPlace reports whether the network reads the weights from the caller's memory. They must
// then stay as they are while a pass uses it.
func (n *Network) InPlace() bool { return n.place }
