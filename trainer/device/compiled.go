package device

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"temper/trainer/xla/graphcache"
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
	addFlags(byMemory)
}

// sameBits are flags of XLA's compilers for GPUs. Left alone, they add the gradients of an
// embedding in the order in which threads arrive, and choose kernels by how fast each was
// when it was compiled: the same step has other bits each time. The kernels of Triton cannot
// do without such a choice.
var sameBits = []string{"--xla_gpu_deterministic_ops=true", "--xla_gpu_autotune_level=0", "--xla_gpu_enable_triton_gemm=false"}

// keepBits has the plugin of a GPU compute the same bits each time. It comes before the
// plugin is first opened in a process. It leaves alone what XLA_FLAGS says already, and
// the plugin of a CPU, which has one order. A library whose name does not tell may be of a GPU.
func keepBits(library string) {
	if !strings.Contains(filepath.Base(library), "cpu") {
		addFlags(sameBits)
	}
}

// addFlags adds flags to those of XLA_FLAGS, but for those that it has. A file of flags, of
// which XLA_FLAGS is the name, stays as it is.
func addFlags(flags []string) {
	all := strings.TrimSpace(os.Getenv("XLA_FLAGS"))
	if all != "" && !strings.HasPrefix(all, "-") {
		slog.Warn("XLA_FLAGS names a file: flags that Temper sets by itself have to be in it", "file", all, "flags", strings.Join(flags, " "))
		return
	}
	for _, f := range flags {
		if name, _, _ := strings.Cut(f, "="); !strings.Contains(all, name+"=") {
			all += " " + f
		}
	}
	_ = os.Setenv("XLA_FLAGS", strings.TrimSpace(all)) // fails only for a name that is no name
}

// Graphs counts the programs that XLA plugins have compiled and loaded in this process. What
// is compiled on a backend of Open is kept on disk and found there again, of whatever part
// of the tree; see trainer/xla/graphcache.
func Graphs() graphcache.Counts { return graphcache.Now() }
