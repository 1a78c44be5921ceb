package device

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"temper/trainer/xla/graphcache"
)

// Alias lets a result of a graph reuse the memory of an input. Both are indices in
// the order of the compiled program.
type Alias struct{ Input, Output int }

// CompiledMemory is the memory of a compiled program on one device, in bytes.
type CompiledMemory struct {
	Arguments int64 `json:"arguments"` // weights, moments, and the inputs of the call
	Results   int64 `json:"results"`
	Aliased   int64 `json:"aliased"` // results in the memory of arguments
	Temporary int64 `json:"temporary"`
	Code      int64 `json:"code"`
}

// Peak returns the most memory of a call of the program.
func (m CompiledMemory) Peak() int64 { return m.Arguments + m.Results - m.Aliased + m.Temporary }

// byMemory are flags of XLA's CPU compiler. By default it starts every operation as early as
// possible: it gathers all weights of a network before it uses the first, and sends gradients
// together, so that the first waits for the last. Compilers for GPUs bound both.
var byMemory = []string{"--xla_cpu_enable_concurrency_optimized_scheduler=false", "--xla_disable_hlo_passes=cpu-all-reduce-combiner"}

// OrderByMemory makes the CPU plugin order programs for little memory instead of speed. Call
// it before the process opens the plugin. It changes nothing for other backends, or if
// XLA_FLAGS sets these flags.
func OrderByMemory(backend string) {
	if !strings.Contains(filepath.Base(LibraryOf(backend)), "cpu") {
		return
	}
	addFlags(byMemory)
}

// sameBits are flags of XLA's compilers for GPUs. By default they add the gradients of an
// embedding in the order in which threads arrive, and choose kernels by their measured speed:
// the same step has other bits each time. The kernels of Triton need such a choice.
var sameBits = []string{"--xla_gpu_deterministic_ops=true", "--xla_gpu_autotune_level=0", "--xla_gpu_enable_triton_gemm=false"}

// keepBits makes the plugin of a GPU compute the same bits each time. Call it before the
// process opens the plugin. It keeps the flags in XLA_FLAGS, and ignores the plugin of a CPU,
// which has one order. A library with an unknown name may be of a GPU.
func keepBits(library string) {
	if !strings.Contains(filepath.Base(library), "cpu") {
		addFlags(sameBits)
	}
}

// addFlags adds the missing flags to XLA_FLAGS. It leaves the name of a file of flags
// unchanged.
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
	_ = os.Setenv("XLA_FLAGS", strings.TrimSpace(all)) // fails only for an invalid name
}

// Graphs counts the programs that XLA plugins have compiled and loaded in this process.
// Programs of every backend of Open are kept on disk; see trainer/xla/graphcache.
func Graphs() graphcache.Counts { return graphcache.Now() }
