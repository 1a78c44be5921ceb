package device

import (
	"strings"

	"github.com/gomlx/compute"

	"temper/trainer/gomlxhooks"
)

// Threads reports whether the device of a backend is the CPU, so that calls from
// several goroutines run side by side on its cores.
func Threads(name string) bool {
	family, _, _ := strings.Cut(name, ":")
	return family == familyGo || family == ""
}

// InOrder adds options to the name of the Go backend: it then runs the operations of
// a call one after another, in the order in which the graph was built. Memory holds
// what the gradients of a pass still need, the same amount at every call, and the
// caches of the CPU are used better. Names of other families, and names that have
// options already, are returned unchanged.
func InOrder(name string) string {
	if name == "" || name == familyGo {
		return familyGo + ":ops_sequential,creation_order"
	}
	return name
}

// Helpers are the threads over which a backend of the Go family distributes the parts
// of one operation. The zero value belongs to other backends, and does nothing.
type Helpers struct {
	set func(parallelism int)
	all int // the parallelism with which the backend was opened
}

// HelpersOf returns the helpers of a backend.
func HelpersOf(b compute.Backend) Helpers {
	p := gomlxhooks.Workers(b)
	if p == nil {
		return Helpers{}
	}
	return Helpers{set: p.SetMaxParallelism, all: p.MaxParallelism()}
}

// Rest keeps each call on the goroutine that makes it. Several calls at the same time
// run faster that way, since each has a core of its own and none distributes its
// parts. The results have the same bits. No call may be running.
func (h Helpers) Rest() {
	if h.set != nil {
		h.set(0)
	}
}

// Work lets calls use the helpers again. No call may be running.
func (h Helpers) Work() {
	if h.set != nil {
		h.set(h.all)
	}
}
