package device

import (
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/tensors"
)

// apart is a backend whose memory is not the host's, as that of an accelerator.
type apart struct{ compute.Backend }

func (apart) HasSharedBuffers() bool { return false }

// TestReadFromADevice: a value comes from where it lies, and one on a device
// alone leaves no second copy on the host.
func TestReadFromADevice(t *testing.T) {
	backend, err := Open("go")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Finalize)
	want := []float32{1, 2, 3, 4, 5, 6}
	for name, place := range map[string]func(v *tensors.Tensor) error{
		"on the host":              func(*tensors.Tensor) error { return nil },
		"in memory that is both":   func(v *tensors.Tensor) error { return v.ToDevice(backend, 0) },
		"on a device alone":        func(v *tensors.Tensor) error { return v.ToDevice(apart{backend}, 0) },
		"on the host and a device": func(v *tensors.Tensor) error { return v.MaterializeOnDevice(apart{backend}, false, 0) },
	} {
		value := tensors.FromFlatDataAndDimensions(want, 2, 3)
		if err := place(value); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		local := value.IsLocal()
		got := make([]float32, len(want))
		if err := Read(got, value); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, error %v; want %v", name, got, err, want)
		}
		if name == "on a device alone" && (local || value.IsLocal()) {
			t.Errorf("%s: on the host before %v, after %v", name, local, value.IsLocal())
		}
	}
}
