package device

import (
	"reflect"
	"strings"

	"github.com/gomlx/compute"
)

// Threads says whether the device of a backend is the processor and calls from
// several goroutines run side by side on its cores.
func Threads(name string) bool {
	family, _, _ := strings.Cut(name, ":")
	return family == familyGo || family == ""
}

// InOrder is the name of a backend that makes the operations of a call one after
// the other, in the order in which the graph was built: what a pass needs for its
// gradients, and no longer, is then in memory, the same at every call, and nearer
// to the processor. Other families, and names with options, are as they are.
func InOrder(name string) string {
	if name == "" || name == familyGo {
		return familyGo + ":ops_sequential,creation_order"
	}
	return name
}

// Helpers are the threads over which a backend of the Go family spreads the parts
// of one operation. The zero value is that of other backends, which have none
// that can be steered.
type Helpers struct {
	set func(parallelism int)
	all int // the parallelism with which the backend was opened
}

// HelpersOf returns the helpers of a backend.
//
// The backend takes their number as an option, once and for all, and prints a line
// on standard output for it. Its type has them as an exported field with exported
// methods, but lives in an internal package, hence the reflection. Where a later
// version has something else there, the backend has no helpers to steer.
func HelpersOf(b compute.Backend) Helpers {
	v := reflect.ValueOf(b)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return Helpers{}
	}
	pool := v.Elem().FieldByName("Workers")
	if !pool.IsValid() || !pool.CanInterface() {
		return Helpers{}
	}
	p, ok := pool.Interface().(interface {
		MaxParallelism() int
		SetMaxParallelism(int)
	})
	if !ok {
		return Helpers{}
	}
	return Helpers{set: p.SetMaxParallelism, all: p.MaxParallelism()}
}

// Rest keeps each call on the goroutine that makes it. Several calls at the same
// time are faster so: each has a core, and none hands its parts around. What they
// compute is the same, to the bit. No call may be under way.
func (h Helpers) Rest() {
	if h.set != nil {
		h.set(0)
	}
}

// Work lets calls spread over helpers again. No call may be under way.
func (h Helpers) Work() {
	if h.set != nil {
		h.set(h.all)
	}
}
