package decodeloop

import (
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
)

// nameRope is the table of rotations among the weights of programs.
const nameRope = "rope"

// weight is a weight of the programs: its shape, and how to make it from a policy.
type weight struct {
	name string
	dims []int
	make func(find tensor.Lookup) []float32
}

// weightsOf lists the weights in the order in which programs take them. Matrices are
// [in, out]. Those with the same input are one, and so are their biases, under the name of
// the first.
func weightsOf(cfg model.Config, positions int) []weight {
	d := cfg.HiddenSize
	var all []weight
	vector := func(size int, names ...string) {
		if names[0] != "" {
			all = append(all, weight{names[0], []int{size}, func(find tensor.Lookup) []float32 { return joinedFloats(find, names) }})
		}
	}
	turned := func(name string, in, out int, from ...string) {
		all = append(all, weight{name, []int{in, out}, func(find tensor.Lookup) []float32 { return transposed(find, from, out) }})
	}
	linear := func(parts ...model.Linear) {
		var weights, biases []string
		out := 0
		for _, l := range parts {
			weights, biases, out = append(weights, l.Weight), append(biases, l.Bias), out+l.Out
		}
		turned(weights[0], parts[0].In, out, weights...)
		vector(out, biases...)
	}
	all = append(all, weight{model.NameEmbed, []int{cfg.VocabSize, d}, func(find tensor.Lookup) []float32 { return floats(find, model.NameEmbed) }})
	for _, l := range cfg.Layers() {
		vector(d, l.AttnNorm)
		linear(l.Q, l.K, l.V)
		vector(cfg.HeadDim, l.QNorm)
		vector(cfg.HeadDim, l.KNorm)
		linear(l.O)
		vector(d, l.MLPNorm)
		linear(l.Gate, l.Up)
		linear(l.Down)
	}
	vector(d, model.NameNorm)
	turned(model.NameHead, d, cfg.VocabSize, cfg.HeadName())
	return append(all, weight{nameRope, []int{positions, cfg.HeadDim}, func(tensor.Lookup) []float32 { return ropeTable(cfg, positions) }})
}

// joinedFloats are the values of several weights, one after another.
func joinedFloats(find tensor.Lookup, names []string) (out []float32) {
	if len(names) == 1 {
		return floats(find, names[0])
	}
	for _, name := range names {
		out = append(out, floats(find, name)...)
	}
	return out
}

// floats are the values of a weight.
func floats(find tensor.Lookup, name string) []float32 {
	t, _ := find(name) // the caller has checked that all are there
	return t.Named().Data
}

// transposed puts weights [out_i, in] side by side, as [in, out].
func transposed(find tensor.Lookup, names []string, out int) []float32 {
	const tile = 32 // rows and columns that fit into the first-level cache
	var data []float32
	column := 0
	for _, name := range names {
		t, _ := find(name)
		named := t.Named()
		rows, in := named.Shape[0], named.Shape[1]
		if data == nil {
			data = make([]float32, in*out)
		}
		for r := 0; r < rows; r += tile {
			for c := 0; c < in; c += tile {
				for o := r; o < min(r+tile, rows); o++ {
					for i := c; i < min(c+tile, in); i++ {
						data[i*out+column+o] = named.Data[o*in+i]
					}
				}
			}
		}
		column += rows
	}
	return data
}

// ropeTable has the cosines and then the sines of each position.
func ropeTable(cfg model.Config, positions int) []float32 {
	half := cfg.HeadDim / 2
	cos, sin := cfg.Rotations(positions)
	table := make([]float32, 0, positions*cfg.HeadDim)
	for at := 0; at < len(cos); at += half {
		table = append(append(table, cos[at:at+half]...), sin[at:at+half]...)
	}
	return table
}
