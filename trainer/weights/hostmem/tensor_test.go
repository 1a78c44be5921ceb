package hostmem

import (
	"slices"
	"testing"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/tensors"
)

// TestValuesAreReused: a value lies in the CPU backend's memory alone, with what it was
// filled with, and the backend may use that memory again.
func TestValuesAreReused(t *testing.T) {
	backend, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Finalize()
	want := []float32{1, 2, 3, 4, 5, 6}
	v, err := NewTensor(backend, []int{2, 3}, func(flat []float32) { copy(flat, want) })
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tensors.CopyFlatData[float32](v); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, error %v; want %v", got, err, want)
	}
	if v.HasLocal() || !v.IsShared() {
		t.Errorf("on the host: %v, shared: %v; want the second alone", v.HasLocal(), v.IsShared())
	}
	if v, err := NewTensor(nil, []int{2}, nil); err != nil || v.IsShared() {
		t.Errorf("without a backend: shared, or error %v", err)
	}
}
