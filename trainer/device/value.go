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

// Value is a result of a pass: whole on one device, or in pieces on the devices of a mesh, where
// they stay. The zero value is no tensor.
type Value struct {
	whole  *tensors.Tensor
	pieces *dtensor.Tensor
}

// Whole is a value on one device, or on the host.
func Whole(t *tensors.Tensor) Value { return Value{whole: t} }

// Wholes returns the values of tensors.
func Wholes(ts []*tensors.Tensor) []Value {
	out := make([]Value, len(ts))
	for i, t := range ts {
		out[i] = Whole(t)
	}
	return out
}

// Pieces is a value on the devices of a mesh.
func Pieces(d *dtensor.Tensor) Value { return Value{pieces: d} }

// Tensor returns a whole value; nil for pieces.
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

// Assign sets a variable to the value and gives up ownership.
func (v Value) Assign(to *model.Variable) error {
	if v.pieces != nil {
		return to.SetDistributedValue(v.pieces)
	}
	return to.SetValue(v.whole)
}

// Donate returns the value as the input of a graph on each device and gives up ownership: the
// graph may put results into its memory.
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

// Release frees the memory of values now instead of at the next garbage collection.
func Release(vs ...Value) {
	for _, v := range vs {
		if v.whole != nil {
			Free(v.whole)
		}
		if v.pieces != nil {
			_ = v.pieces.Finalize() // fails only for freed buffers
		}
	}
}

// Gather copies the pieces of a value to the host and frees those on the devices.
func (v Value) Gather() (Value, error) {
	flat, err := v.Floats()
	if err != nil {
		return Value{}, err
	}
	dims := v.pieces.Shape().Dimensions
	Release(v)
	return Whole(tensors.FromFlatDataAndDimensions(flat, dims...)), nil
}
