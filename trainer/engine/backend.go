package engine

import (
	"reflect"

	"github.com/gomlx/compute"
)

// singleThread turns off the worker pool of the pure Go backend: a shard has one
// thread of its own, and handing parts of 50-microsecond operations to others
// costs 10 to 25 % more CPU. The backend's option for it ("parallelism=0")
// prints to stdout, and its type is internal, hence the reflection; a backend
// without such a pool is left alone.
func singleThread(backend compute.Backend) {
	v := reflect.Indirect(reflect.ValueOf(backend))
	if v.Kind() != reflect.Struct {
		return
	}
	pool := v.FieldByName("Workers")
	if !pool.IsValid() || pool.Kind() != reflect.Pointer || pool.IsNil() {
		return
	}
	set := pool.MethodByName("SetMaxParallelism")
	if set.IsValid() && set.Type().NumIn() == 1 && set.Type().In(0).Kind() == reflect.Int {
		set.Call([]reflect.Value{reflect.ValueOf(0)})
	}
}
