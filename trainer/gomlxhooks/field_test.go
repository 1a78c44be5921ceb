package gomlxhooks_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/gomlxhooks"
)

func TestReuseBuffer(t *testing.T) {
	backend := open(t)
	v, err := tensors.FromShapeForBackend(backend, 0, shapes.Make(dtypes.Float32, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	buffer, err := v.Buffer(backend, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !gomlxhooks.ReuseBuffer(buffer) {
		t.Error("Buffer.isUserFed of github.com/gomlx/compute/internal/gobackend is not a bool")
	}
	if gomlxhooks.ReuseBuffer(nil) {
		t.Error("a buffer without the field is reused")
	}
}

func TestWorkers(t *testing.T) {
	workers := gomlxhooks.Workers(open(t))
	if workers == nil {
		t.Fatal("Backend.Workers of github.com/gomlx/compute/internal/gobackend has no MaxParallelism and SetMaxParallelism")
	}
	workers.SetMaxParallelism(3)
	if n := workers.MaxParallelism(); n != 3 {
		t.Errorf("%d threads, want 3", n)
	}
	if gomlxhooks.Workers(nil) != nil {
		t.Error("no backend has workers")
	}
}

func open(t *testing.T) compute.Backend {
	t.Helper()
	backend, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Finalize)
	return backend
}
