package hosts

import (
	"errors"
	"testing"

	"github.com/gomlx/compute/dtypes"
)

// TestSizesThatOverflow: dimensions whose product is beyond 64 bits are refused before
// anything is allocated.
func TestSizesThatOverflow(t *testing.T) {
	parts := []part{{dtypes.Float32, []int{1 << 33, 1 << 31}}, {dtypes.Float32, []int{1 << 32}}}
	if _, err := newTensors(parts, 1<<34); !errors.Is(err, errFrame) {
		t.Errorf("error %v, want %v", err, errFrame)
	}
	if out, err := newTensors([]part{{dtypes.Float32, []int{2, 3}}, {dtypes.Int32, nil}}, 28); err != nil || len(out) != 2 {
		t.Errorf("%d tensors, %v", len(out), err)
	}
}
