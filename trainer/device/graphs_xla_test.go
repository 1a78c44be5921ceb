//go:build xla

package device_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/device"
	"temper/trainer/xla/graphcache"
	"temper/trainer/xla/xlatest"
)

// openXLA opens the backend, with compiled programs in a folder of the test.
func openXLA(t *testing.T, dir string) compute.Backend {
	t.Helper()
	name := xlatest.Backend(t)
	t.Setenv(graphcache.DirKey, dir)
	backend, err := device.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Finalize)
	return backend
}

// product multiplies two matrices in a graph of its own, as a process that starts does.
func product(t *testing.T, backend compute.Backend) []float32 {
	t.Helper()
	exec, err := graph.NewExec(backend, func(x *graph.Node) *graph.Node { return graph.Tanh(graph.MatMul(x, graph.Transpose(x, 0, 1))) })
	if err != nil {
		t.Fatal(err)
	}
	defer exec.Finalize()
	x := []float32{1, 2, 3, 4, 5, 6}
	for i := range x {
		x[i] /= 10
	}
	out, err := exec.Call(tensors.FromFlatDataAndDimensions(x, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	flat, err := tensors.CopyFlatData[float32](out[0])
	if err != nil {
		t.Fatal(err)
	}
	return flat
}

// TestXLAGraphsAreKept: what was compiled once is loaded, with equal results. What is damaged
// or gone is compiled again. Without a folder everything is compiled.
func TestXLAGraphsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "graphs")
	backend := openXLA(t, dir)
	before := device.Graphs()
	want := product(t, backend)
	check := func(when string, compiled, loaded, refused int) {
		t.Helper()
		got := product(t, backend)
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		n := device.Graphs().Since(before)
		if n.Compiled != compiled || n.Loaded != loaded || n.Refused != refused {
			t.Errorf("%s: %+v, want %d compiled, %d loaded, %d refused", when, n, compiled, loaded, refused)
		}
	}
	check("again", 1, 1, 0)
	entries, err := filepath.Glob(filepath.Join(dir, "*.graph"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("entries %v, error %v", entries, err)
	}
	whole, err := os.ReadFile(entries[0])
	if err != nil {
		t.Fatal(err)
	}
	whole[len(whole)-1] ^= 1
	if err := os.WriteFile(entries[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	check("damaged", 2, 1, 1)
	check("compiled again", 2, 2, 1)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	check("gone", 3, 2, 1)
	check("there again", 3, 3, 1)
	t.Setenv("XLA_FLAGS", os.Getenv("XLA_FLAGS")+" ") // other flags, as far as anybody can tell
	check("other flags", 4, 3, 1)
	t.Setenv(graphcache.DirKey, "off")
	check("no folder", 5, 3, 1)
	if n := device.Graphs().Programs - before.Programs; n != 2 {
		t.Errorf("%d programs differ, want 2, by their flags", n)
	}
	t.Logf("an entry has %d bytes, %+v", len(whole), device.Graphs().Since(before))
}

// TestXLAEqualGraphsAtATime: of equal programs that are asked for at the same time, one is
// compiled.
func TestXLAEqualGraphsAtATime(t *testing.T) {
	backend := openXLA(t, filepath.Join(t.TempDir(), "graphs"))
	before := device.Graphs()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { product(t, backend) })
	}
	all.Wait()
	if n := device.Graphs().Since(before); n.Compiled != 1 || n.Loaded != 3 {
		t.Errorf("%+v, want one compiled and three loaded", n)
	}
}
