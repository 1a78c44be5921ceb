package gguf

import (
	"fmt"
	"slices"

	"temper/trainer/model"
	"temper/trainer/weights/safetensors"
)

// tensorKind is a type of tensors under the format's code.
type tensorKind struct {
	dtype safetensors.DType
	code  uint32
	// file is the code of a file whose matrices have this type (general.file_type).
	file uint32
}

func kindOf(d safetensors.DType) (tensorKind, error) {
	for _, k := range []tensorKind{{safetensors.F32, 0, 0}, {safetensors.F16, 1, 1}, {safetensors.BF16, 30, 32}} {
		if k.dtype == d {
			return k, nil
		}
	}
	return tensorKind{}, fmt.Errorf("dtype %q, want F32, F16 or BF16", d)
}

// entriesOf places the tensors of a network. Vectors stay in float32, as llama.cpp
// wants them; there a tied head is no tensor either.
func entriesOf(network model.Config, matrices tensorKind) ([]entry, error) {
	var out []entry
	vectors, err := kindOf(safetensors.F32)
	if err != nil {
		return nil, err
	}
	headDims := map[string]int{}
	if network.Family().GGUFInterleaved {
		for _, l := range network.Layers() {
			for _, name := range []string{l.Q.Weight, l.Q.Bias, l.K.Weight, l.K.Bias} {
				headDims[name] = network.HeadDim
			}
		}
	}
	at := int64(0)
	for _, spec := range network.Tensors() {
		name, err := spec.GGUF()
		if err != nil {
			return nil, err
		}
		kind := matrices
		if len(spec.Shape) == 1 {
			kind = vectors
		}
		out = append(out, entry{source: spec.Name, name: name, shape: slices.Clone(spec.Shape), kind: kind, offset: at, headDim: headDims[spec.Name]})
		size := int64(spec.Size()) * kind.dtype.Size()
		at += size + padding(size)
	}
	return out, nil
}

// interleaved puts the rows of each head into the order in which rotations pair neighbours:
// row j of the first half, row j of the second, for each j.
func interleaved(data []float32, rows, headDim int) []float32 {
	out, width, half := make([]float32, 0, len(data)), len(data)/rows, headDim/2
	for head := 0; head < rows; head += headDim {
		for j := range half {
			for _, row := range []int{head + j, head + half + j} {
				out = append(out, data[row*width:(row+1)*width]...)
			}
		}
	}
	return out
}
