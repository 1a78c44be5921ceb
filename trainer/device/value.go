package device

import (
	"errors"
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/core/tensors/dtensor"
	"github.com/gomlx/gomlx/ml/model"
)

// Value is a tensor that a pass yields: whole on one device, or in pieces on the devices
// of a mesh, which stay there. The zero value is no tensor.
type Value struct {
	whole  *tensors.Tensor
	pieces *dtensor.Tensor
}

// Whole is a value on one device, or on the host.
func Whole(t *tensors.Tensor) Value { return Value{whole: t} }

// Wholes makes values of tensors.
func Wholes(ts []*tensors.Tensor) []Value {
	out := make([]Value, len(ts))
	for i, t := range ts {
		out[i] = Whole(t)
	}
	return out
}

// Pieces is a value on the devices of a mesh.
func Pieces(d *dtensor.Tensor) Value { return Value{pieces: d} }

// Tensor is the value where it is whole; nil where it lies in pieces.
func (v Value) Tensor() *tensors.Tensor { return v.whole }

// Floats copies the value to the host.
func (v Value) Floats() ([]float32, error) {
	switch {
	case v.whole != nil:
		return tensors.CopyFlatData[float32](v.whole)
	case v.pieces != nil:
		out := make([]float32, v.pieces.Shape().Size())
		return out, readPieces(out, v.pieces)
	}
	return nil, errors.New("no tensor")
}

// Assign makes the value that of a variable, which takes it over.
func (v Value) Assign(to *model.Variable) error {
	if v.pieces != nil {
		return to.SetDistributedValue(v.pieces)
	}
	return to.SetValue(v.whole)
}

// Donate returns what a graph takes as its input on each device: it may put results into
// the memory of the value, which is gone afterwards.
func (v Value) Donate(b compute.Backend) ([]any, error) {
	parts := []*tensors.Tensor{v.whole}
	if v.pieces != nil {
		parts = v.pieces.Shards()
	}
	out := make([]any, len(parts))
	for i, part := range parts {
		var err error
		if out[i], err = graph.DonateTensorBuffer(part, b, compute.DeviceNum(i)); err != nil {
			return nil, fmt.Errorf("donate to device %d: %w", i, err)
		}
	}
	return out, nil
}

// Release gives the memory of values back now, and not at the next garbage collection.
func Release(vs ...Value) {
	for _, v := range vs {
		if v.whole != nil {
			Free(v.whole)
		}
		if v.pieces != nil {
			_ = v.pieces.Finalize() // fails only for buffers that are gone already
		}
	}
}

// Gather brings the pieces of a value to the host, and gives up those on the devices.
func (v Value) Gather() (Value, error) {
	flat, err := v.Floats()
	if err != nil {
		return Value{}, err
	}
	dims := v.pieces.Shape().Dimensions
	Release(v)
	return Whole(tensors.FromFlatDataAndDimensions(flat, dims...)), nil
}
