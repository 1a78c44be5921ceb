package device

import (
	"os"
	"path/filepath"
	"strings"

	"temper/trainer/graphcache"
)

// Alias says that a result of a graph may take the memory of an input. Both are counted
// in the order of the compiled program.
type Alias struct{ Input, Output int }

// CompiledMemory is the memory of one device that a compiled program uses, in bytes.
type CompiledMemory struct {
	Arguments int64 `json:"arguments"` // weights, moments, and the inputs of the call
	Results   int64 `json:"results"`
	Aliased   int64 `json:"aliased"` // results that lie in the memory of arguments
	Temporary int64 `json:"temporary"`
	Code      int64 `json:"code"`
}

// Peak is what a call of the program needs at most.
func (m CompiledMemory) Peak() int64 { return m.Arguments + m.Results - m.Aliased + m.Temporary }

// byMemory are flags of XLA's CPU compiler. Left alone, it starts whatever can start: all
// weights of a network are gathered before the first of them is used. And it sends
// gradients together, so that the first waits for the last. Compilers for GPUs bound both.
var byMemory = []string{"--xla_cpu_enable_concurrency_optimized_scheduler=false", "--xla_disable_hlo_passes=cpu-all-reduce-combiner"}

// OrderByMemory has the CPU plugin order programs so that they need little memory, and not
// for speed. It comes before the plugin is first opened in a process, and changes nothing
// for other backends and where XLA_FLAGS says something about it already.
func OrderByMemory(backend string) {
	if !strings.Contains(filepath.Base(LibraryOf(backend)), "cpu") {
		return
	}
	flags := os.Getenv("XLA_FLAGS")
	for _, f := range byMemory {
		if name, _, _ := strings.Cut(f, "="); !strings.Contains(flags, name+"=") {
			flags += " " + f
		}
	}
	_ = os.Setenv("XLA_FLAGS", strings.TrimSpace(flags)) // fails only for a name that is no name
}

// Graphs counts the programs that XLA plugins have compiled and loaded in this process. What
// is compiled on a backend of Open is kept on disk and found there again, of whatever part
// of the tree; see trainer/graphcache.
func Graphs() graphcache.Counts { return graphcache.Now() }
