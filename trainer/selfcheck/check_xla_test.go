//go:build xla

package selfcheck_test

import (
	"os"
	"testing"

	"temper/trainer/device"
	"temper/trainer/plugin"
	"temper/trainer/selfcheck"
)

// TestXLASelfCheck passes on the plugin that Temper was tried with.
func TestXLASelfCheck(t *testing.T) {
	if _, err := plugin.Find("cpu"); err != nil {
		if os.Getenv("TEMPER_REQUIRE_XLA") != "" {
			t.Fatal(err)
		}
		t.Skipf("%v (2026-11-23: temper backend install cpu)", err)
	}
	r, err := selfcheck.Run(t.Context(), "xla:cpu", device.Mesh{Data: 2, Model: 2, FSDP: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if r.NumDevices != 4 || r.Graphs == 0 {
		t.Errorf("report %+v", r)
	}
}
