package workers

import (
	"strings"
	"testing"

	"temper/internal/config"
	"temper/trainer/device"
)

// TestMakersNameKernels: the Go backend has the kernels of a run's choice, with options or
// without.
func TestMakersNameKernels(t *testing.T) {
	want := makerOf("trainer", "go", device.Mesh{})(config.Run{}).Kernels
	if !strings.Contains(want, "variant=") {
		t.Errorf("kernels %q", want)
	}
	for _, backend := range []string{"", "go:parallelism=1"} {
		if got := makerOf("trainer", backend, device.Mesh{})(config.Run{}).Kernels; got != want {
			t.Errorf("backend %q: kernels %q, want %q", backend, got, want)
		}
	}
}
