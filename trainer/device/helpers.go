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

// InOrder adds options to the name of the Go backend: it then runs the operations of a call
// one after another, in the order of the graph. A pass then holds the same memory at every
// call, the values that its gradients still need, and uses the caches of the CPU better. InOrder
// returns names of other families, and names with options, unchanged.
func InOrder(name string) string {
	if name == "" || name == familyGo {
		return familyGo + ":ops_sequential,creation_order"
	}
	return name
}

// Helpers are the threads over which a backend of the Go family distributes one operation. The
// zero value belongs to other backends, and does nothing.
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

// Rest makes each call run on its caller's goroutine. Concurrent calls are faster that way:
// each has a core and distributes nothing. The results have the same bits. No call may be
// running.
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
