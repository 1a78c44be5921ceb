//go:build xla

package selfcheck_test

import (
	"errors"
	"testing"

	"temper/trainer/device"
	"temper/trainer/xla/selfcheck"
	"temper/trainer/xla/xlatest"
)

// TestXLASelfCheck passes on the plugin that Temper was tried with.
func TestXLASelfCheck(t *testing.T) {
	backend := xlatest.Backend(t)
	meshes := append([]device.Mesh{{}}, xlatest.Meshes(t, backend)...)
	r, err := selfcheck.Run(t.Context(), backend, meshes[len(meshes)-1])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if r.NumDevices != xlatest.Devices(t, backend) || r.Graphs == 0 {
		t.Errorf("report %+v", r)
	}
	many := device.Mesh{Data: 1, Model: 2 * r.NumDevices}
	if _, err := selfcheck.Run(t.Context(), backend, many); !errors.Is(err, device.ErrNoDevice) {
		t.Errorf("a mesh of %d devices: %v, want %v", many.NumDevices(), err, device.ErrNoDevice)
	}
}
