// Package xlatest selects the device of the tests of XLA: the CPU plugin, or, behind the
// build tag gpu, the device of the flag -device. Only tests import it.
package xlatest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/trainer/device"
)

// Backend is the backend of the tests. Without its plugin the test is skipped, or fails
// if TEMPER_REQUIRE_XLA is set. On a GPU, products use all bits of their
// factors, since the tests compare with the backend go, and memory is allocated when it is
// needed, since a test may open the device more than once.
func Backend(t testing.TB) string {
	t.Helper()
	name := deviceName()
	if err := device.Check(name); err != nil {
		if os.Getenv("TEMPER_REQUIRE_XLA") != "" {
			t.Fatal(err)
		}
		t.Skipf("%v (2026-11-23: temper backend install cpu)", err)
	}
	if name != "xla:cpu" && !strings.Contains(name, ",") {
		name += ",tf32=false,preallocate=false"
	}
	return name
}

// OnGPU reports whether a backend drives a GPU.
func OnGPU(backend string) bool {
	return !strings.Contains(filepath.Base(device.LibraryOf(backend)), "cpu")
}

// Workspace is the memory that products of matrices need beside their results: on a GPU 32
// MiB, which cuBLAS wants on Hopper.
func Workspace(backend string) int64 {
	if OnGPU(backend) {
		return 32 << 20
	}
	return 0
}

// Devices is how many devices the backend drives.
func Devices(t testing.TB, backend string) int {
	t.Helper()
	b, err := device.Open(backend)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Finalize()
	return b.NumDevices()
}

// Meshes are the data axis, the model axis and both over as many devices as there are, up
// to four; none with one device.
func Meshes(t testing.TB, backend string) []device.Mesh {
	t.Helper()
	switch n := Devices(t, backend); {
	case n >= 4:
		return []device.Mesh{{Data: 4, Model: 1, FSDP: true}, {Data: 1, Model: 4}, {Data: 2, Model: 2, FSDP: true}}
	case n >= 2:
		return []device.Mesh{{Data: 2, Model: 1, FSDP: true}, {Data: 1, Model: 2}}
	}
	return nil
}
