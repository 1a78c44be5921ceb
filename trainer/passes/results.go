package passes

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/loss"
	"temper/trainer/packing"
)

// CheckResults returns an error for results without the form of a pass over a shape. A sum
// would accept a single number for a whole gradient.
func (s RemoteSetup) CheckResults(p Program, shape packing.Shape, out []*tensors.Tensor) error {
	want, err := s.resultsOf(p, shape)
	if err != nil {
		return err
	}
	if len(out) != len(want) {
		return fmt.Errorf("%s: %d results, want %d", p, len(out), len(want))
	}
	for i, t := range out {
		if !t.Shape().Equal(want[i]) {
			return fmt.Errorf("%s: result %d is %s, want %s", p, i, t.Shape(), want[i])
		}
	}
	return nil
}

// resultsOf returns the shapes of the results of a pass; see builder.results.
func (s RemoteSetup) resultsOf(p Program, shape packing.Shape) ([]shapes.Shape, error) {
	switch p.Kind {
	case Score:
		perToken := shapes.Make(dtypes.Float32, shape.Rows, shape.Length)
		if s.Config.entropies() {
			return []shapes.Shape{perToken, perToken}, nil
		}
		return []shapes.Shape{perToken}, nil
	case Gradient:
		out := []shapes.Shape{shapes.Make(dtypes.Float32, int(loss.NumMeasures))}
		for _, spec := range s.gradients {
			out = append(out, shapes.Make(dtypes.Float32, spec.Shape...))
		}
		return out, nil
	default:
		return nil, fmt.Errorf("%s is made in no other process", p)
	}
}
