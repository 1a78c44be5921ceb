//go:build goexperiment.simd && amd64

package kernels

import (
	"reflect"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	_ "github.com/gomlx/compute/gobackend" // owns the variables below and fills them when the process starts

	"temper/trainer/blockwise"
)

// The backend finds its kernels through the variables below, and offers no way to choose
// them but the environment of the process. They are linked by name: a version of the
// backend that renames one does not link, and TestHooksLeadToTheKernels notices one that
// has lost its meaning. A value of type func or map is one pointer, and is only copied
// here.

//go:linkname trailingSums github.com/gomlx/compute/internal/gobackend.reduceTrailingSumArchFn
var trailingSums unsafe.Pointer

//go:linkname trailingSumsPriority github.com/gomlx/compute/internal/gobackend.reduceTrailingSumArchPriority
var trailingSumsPriority int

//go:linkname leadingSums github.com/gomlx/compute/internal/gobackend.reduceLeadingSumArchFn
var leadingSums unsafe.Pointer

//go:linkname leadingSumsPriority github.com/gomlx/compute/internal/gobackend.reduceLeadingSumArchPriority
var leadingSumsPriority int

//go:linkname binaries github.com/gomlx/compute/internal/gobackend.binaryTrailingArchFn
var binaries unsafe.Pointer

//go:linkname binariesPriority github.com/gomlx/compute/internal/gobackend.binaryTrailingArchPriority
var binariesPriority int

//go:linkname norms github.com/gomlx/compute/internal/gobackend.layerNormTrailingArchFn
var norms unsafe.Pointer

//go:linkname normsPriority github.com/gomlx/compute/internal/gobackend.layerNormTrailingArchPriority
var normsPriority int

//go:linkname attention github.com/gomlx/compute/internal/gobackend.sdpaFloat32ArchFn
var attention unsafe.Pointer

// products are kernels that go before those that the backend chose. Graphs remember
// the ones that they were built with.
//
//go:linkname products github.com/gomlx/compute/internal/gobackend/dot.testRegisteredImplementations
var products unsafe.Pointer

// thresholds are the least sizes of sums that use vectors: three maps.
//
//go:linkname thresholds github.com/gomlx/compute/internal/gobackend/ops.reduceThresholds
var thresholds [3]unsafe.Pointer

//go:linkname thresholdsAVX2 github.com/gomlx/compute/internal/gobackend/ops.avx2ReduceThresholds
var thresholdsAVX2 [3]unsafe.Pointer

//go:linkname registerSumsAVX2 github.com/gomlx/compute/internal/gobackend/ops/avx2.registerAVX2
func registerSumsAVX2()

//go:linkname registerNormsAVX2 github.com/gomlx/compute/internal/gobackend/fusedops/avx2.registerAVX2
func registerNormsAVX2()

//go:linkname registerProductsAVX2 github.com/gomlx/compute/internal/gobackend/dot/matmul/avx2.RegisterAVX2ForTests
func registerProductsAVX2()

//go:linkname registerProductsScalar github.com/gomlx/compute/internal/gobackend/dot/matmul.RegisterNoSIMDForTests
func registerProductsScalar()

//go:linkname productOf github.com/gomlx/compute/internal/gobackend/dot.FindRegisteredImplementation
func productOf(layout int, in, out dtypes.DType) *productKernel

//go:linkname smallBFloat16 github.com/gomlx/compute/internal/gobackend/dot/matmul/avx2.avx2SmallBFloat16Parallel
func smallBFloat16(backend unsafe.Pointer, layout int, lhs, rhs []bfloat16.BFloat16, batch, rows, columns, depth int, out []float32)

//go:linkname attentionAVX2 github.com/gomlx/compute/internal/gobackend/fusedops/avx2.DispatchSDPAAVX2
func attentionAVX2(q, k, v, output []float32, qOff, kvOff, qSeqStride, kvSeqStride, qGroupStride int,
	additiveMask []float32, booleanMask []bool, maskGroupStride int, additiveBias []float32, biasGroupStride int,
	scores []float32, groupSize, seqLen, kvLen, headDim int, scale float32, causal bool, qLimit, kvLimit int) bool

// tables teaches the backend's attention to read tables, when the process starts: later
// somebody might be computing.
var tables = func() attentionFunc {
	var inner attentionFunc
	if attention != nil {
		inner = *(*attentionFunc)(unsafe.Pointer(&attention))
	}
	fast := map[Variant]func(*lookup) bool{AVX512: attend16, AVX2: attend8}[nativeVariant()]
	f := withTables(inner, fast, blocksOf(nativeVariant()))
	attention = *(*unsafe.Pointer)(unsafe.Pointer(&f))
	return f
}()

// productKernel is the backend's dot.ImplementationRegistration.
type productKernel struct {
	_        string // its name
	function any
	_        int // its priority
}

// halves are the products of numbers of 16 bits: of two layouts and two types.
var halves = [...]struct {
	layout int
	in     dtypes.DType
}{{0, dtypes.BFloat16}, {1, dtypes.BFloat16}, {0, dtypes.Float16}, {1, dtypes.Float16}}

// rightHalves are right kernels of halves. The backend's large ones for AVX2 (v0.1.14)
// multiply each fourth row with the numbers that are a term ahead, so a quarter of their
// results is wrong. Its small one for bfloat16 is right at every size; float16, which no
// graph of this program has, is left to plain Go. The process starts with them where the CPU
// has no AVX-512, and hooksAVX2 puts them into its own.
var rightHalves = func() (functions [len(halves)]any) {
	registerProductsScalar()
	for i, h := range halves {
		functions[i] = productOf(h.layout, h.in, dtypes.Float32).function
		if h.in == dtypes.BFloat16 {
			functions[i] = small(reflect.TypeOf(functions[i]))
		}
	}
	products = nil
	if nativeVariant() == AVX2 {
		replaceHalves(functions)
	}
	return functions
}()

// small is smallBFloat16 as a function of the backend's type, which has no name here: its
// last argument is what the large kernels keep between calls.
func small(kind reflect.Type) any {
	return reflect.MakeFunc(kind, func(a []reflect.Value) []reflect.Value {
		n := func(i int) int { return int(a[i].Int()) }
		smallBFloat16(a[0].UnsafePointer(), n(1), a[2].Interface().([]bfloat16.BFloat16), a[3].Interface().([]bfloat16.BFloat16),
			n(4), n(5), n(6), n(7), a[8].Interface().([]float32))
		return nil
	}).Interface()
}

// replaceHalves puts functions in place of the products that the backend would take now.
func replaceHalves(functions [len(halves)]any) {
	for i, h := range halves {
		if p := productOf(h.layout, h.in, dtypes.Float32); p != nil { // none with GOMLX_GO_DOT_MATMUL=0, which the backend names
			p.function = functions[i]
		}
	}
}

// blocksOf are the kernels of a variant for whole sequences.
func blocksOf(v Variant) *blockwise.Kernels {
	switch v {
	case AVX512:
		return blockwise.AVX512()
	case AVX2:
		return blockwise.AVX2()
	case Scalar:
	}
	return blockwise.Scalar()
}

// hooks are the values of the variables for one choice.
type hooks struct {
	trailingSums, leadingSums, binaries, norms, attention, products unsafe.Pointer
	thresholds                                                      [3]unsafe.Pointer
}

// sets holds the hooks of both choices, once they are known.
var sets map[Choice]hooks

// put puts the kernels of a choice in force. It is called by the turnstile alone.
func put(c Choice) {
	if sets == nil {
		sets = map[Choice]hooks{Native: readHooks(), Portable: hooksAVX2()}
	}
	writeHooks(sets[c])
}

func readHooks() hooks {
	return hooks{trailingSums, leadingSums, binaries, norms, attention, products, thresholds}
}

func writeHooks(h hooks) {
	trailingSums, leadingSums, binaries, norms, attention, products = h.trailingSums, h.leadingSums, h.binaries, h.norms, h.attention, h.products
	thresholds = h.thresholds
}

// hooksAVX2 lets the backend register its kernels for AVX2 as if there were none of a
// higher priority, and puts everything back.
func hooksAVX2() hooks {
	priorities := []*int{&trailingSumsPriority, &leadingSumsPriority, &binariesPriority, &normsPriority}
	before := make([]int, len(priorities))
	for i, p := range priorities {
		before[i], *p = *p, 0
	}
	products = nil
	registerSumsAVX2()
	registerNormsAVX2()
	registerProductsAVX2()
	replaceHalves(rightHalves)
	f := withTables(attentionAVX2, attend8, blocksOf(AVX2))
	attention = *(*unsafe.Pointer)(unsafe.Pointer(&f))
	thresholds = thresholdsAVX2
	h := readHooks()
	for i, p := range priorities {
		*p = before[i]
	}
	return h
}
