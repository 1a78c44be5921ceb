//go:build xla

package workers

import (
	"os"
	"strings"
	"testing"

	"temper/internal/config"
	"temper/internal/run"
	"temper/trainer/device"
	"temper/trainer/xla/xlatest"
)

// TestXLAEnginesNameTheirDevice: engines of other devices, plugins or flags say so, and the
// group of a run compares it. A run's records have the same line.
func TestXLAEnginesNameTheirDevice(t *testing.T) {
	backend, r := xlatest.Backend(t), &run.Loaded{}
	kernels := func(backend string) string {
		t.Helper()
		who, err := identify(r, "e", backend)
		if err != nil {
			t.Fatal(err)
		}
		return who.Kernels
	}
	line := kernels(backend)
	for _, field := range []string{"plugin=", "device=", "xla_flags=", "host="} {
		if !strings.Contains(line, field) {
			t.Errorf("no %s in %q", field, line)
		}
	}
	if line == kernels("go") || kernels(backend) != line {
		t.Errorf("kernels %q, of the Go backend %q", line, kernels("go"))
	}
	if got := kernels(backend + ",memory_fraction=0.5"); got != line {
		t.Errorf("with a bound of memory: %q, want %q", got, line)
	}
	if got := makerOf("rollout", backend, device.Mesh{})(config.Run{}).Kernels; got != line {
		t.Errorf("the records have %q, want %q", got, line)
	}
	t.Setenv("XLA_FLAGS", os.Getenv("XLA_FLAGS")+" --xla_cpu_max_isa=SSE4_2")
	if kernels(backend) == line {
		t.Error("XLA's flags do not decide")
	}
	if _, err := identify(r, "e", "xla:/none.so"); err == nil {
		t.Error("an engine without a device says who it is")
	}
}
