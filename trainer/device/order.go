package device

import (
	"os"
	"path/filepath"
	"strings"
)

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
