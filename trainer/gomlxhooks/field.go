package gomlxhooks

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/gomlx/compute"
)

// fieldOf returns a field of the struct at pointer of, readable and writable.
func fieldOf(of any, name string) (reflect.Value, error) {
	v := reflect.ValueOf(of)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, fmt.Errorf("%T is not a pointer to a struct", of)
	}
	f := v.Elem().FieldByName(name)
	if !f.IsValid() {
		return reflect.Value{}, fmt.Errorf("%T has no field %s in this version of the library", of, name)
	}
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem(), nil //nolint:gosec // an unexported field has no other access
}

// ReuseBuffer lets the Go backend use the memory of a buffer again when the value in it has
// been replaced; otherwise the backend leaves it to the collector, as data of a caller. It
// reports false for buffers of another backend.
//
// compute v0.1.14, internal/gobackend/buffers.go: Buffer.isUserFed bool.
func ReuseBuffer(b compute.Buffer) bool {
	f, err := fieldOf(b, "isUserFed")
	if err != nil || f.Kind() != reflect.Bool {
		return false
	}
	f.SetBool(false)
	return true
}

// WorkerPool are the threads over which the Go backend distributes one operation.
type WorkerPool interface {
	MaxParallelism() int
	SetMaxParallelism(n int)
}

// Workers returns the threads of a Go backend, nil for another backend. The backend's option
// for their number is fixed when it is opened and prints a line on standard output.
//
// compute v0.1.14, internal/gobackend/gobackend.go: Backend.Workers *workerspool.Pool.
func Workers(b compute.Backend) WorkerPool {
	f, err := fieldOf(b, "Workers")
	if err != nil {
		return nil
	}
	pool, ok := f.Interface().(WorkerPool)
	if !ok || f.IsNil() {
		return nil
	}
	return pool
}
