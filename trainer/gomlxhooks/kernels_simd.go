//go:build goexperiment.simd && amd64

package gomlxhooks

import (
	"reflect"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
)

// The Go backend calls its kernels through the variables below, and chooses them from the
// environment of the process alone. Values of func and map types are one pointer, and are
// only copied here. All files below are in compute v0.1.14.

// internal/gobackend/reduce_arch_trailing_sum.go: var reduceTrailingSumArchFn ReduceTrailingSumArchFn.
//
//go:linkname trailingSums github.com/gomlx/compute/internal/gobackend.reduceTrailingSumArchFn
var trailingSums unsafe.Pointer

// internal/gobackend/reduce_arch_trailing_sum.go: var reduceTrailingSumArchPriority RegisterPriority.
//
//go:linkname trailingSumsPriority github.com/gomlx/compute/internal/gobackend.reduceTrailingSumArchPriority
var trailingSumsPriority int

// internal/gobackend/reduce_arch_leading_sum.go: var reduceLeadingSumArchFn ReduceLeadingSumArchFn.
//
//go:linkname leadingSums github.com/gomlx/compute/internal/gobackend.reduceLeadingSumArchFn
var leadingSums unsafe.Pointer

// internal/gobackend/reduce_arch_leading_sum.go: var reduceLeadingSumArchPriority RegisterPriority.
//
//go:linkname leadingSumsPriority github.com/gomlx/compute/internal/gobackend.reduceLeadingSumArchPriority
var leadingSumsPriority int

// internal/gobackend/binary_arch_trailing.go: var binaryTrailingArchFn BinaryTrailingArchFn.
//
//go:linkname binaries github.com/gomlx/compute/internal/gobackend.binaryTrailingArchFn
var binaries unsafe.Pointer

// internal/gobackend/binary_arch_trailing.go: var binaryTrailingArchPriority RegisterPriority.
//
//go:linkname binariesPriority github.com/gomlx/compute/internal/gobackend.binaryTrailingArchPriority
var binariesPriority int

// internal/gobackend/layernorm_arch_trailing.go: var layerNormTrailingArchFn LayerNormTrailingArchFn.
//
//go:linkname norms github.com/gomlx/compute/internal/gobackend.layerNormTrailingArchFn
var norms unsafe.Pointer

// internal/gobackend/layernorm_arch_trailing.go: var layerNormTrailingArchPriority RegisterPriority.
//
//go:linkname normsPriority github.com/gomlx/compute/internal/gobackend.layerNormTrailingArchPriority
var normsPriority int

// products are kernels that the backend prefers to the ones it chose. A graph keeps the
// kernels that it was built with.
// internal/gobackend/dot/registration.go: var testRegisteredImplementations map[ImplementationKey]*ImplementationRegistration.
//
//go:linkname products github.com/gomlx/compute/internal/gobackend/dot.testRegisteredImplementations
var products unsafe.Pointer

// thresholds are the least sizes of sums that use vectors: a struct of three maps.
// internal/gobackend/ops/reduce_thresholds.go: var reduceThresholds ReduceThresholdsConfig.
//
//go:linkname thresholds github.com/gomlx/compute/internal/gobackend/ops.reduceThresholds
var thresholds [3]unsafe.Pointer

// internal/gobackend/ops/reduce_thresholds_amd64.go: var avx2ReduceThresholds ReduceThresholdsConfig.
//
//go:linkname thresholdsAVX2 github.com/gomlx/compute/internal/gobackend/ops.avx2ReduceThresholds
var thresholdsAVX2 [3]unsafe.Pointer

// internal/gobackend/ops/avx2/avx2.go: func registerAVX2().
//
//go:linkname registerSumsAVX2 github.com/gomlx/compute/internal/gobackend/ops/avx2.registerAVX2
func registerSumsAVX2()

// internal/gobackend/fusedops/avx2/avx2.go: func registerAVX2().
//
//go:linkname registerNormsAVX2 github.com/gomlx/compute/internal/gobackend/fusedops/avx2.registerAVX2
func registerNormsAVX2()

// internal/gobackend/dot/matmul/avx2/avx2.go: func RegisterAVX2ForTests().
//
//go:linkname registerProductsAVX2 github.com/gomlx/compute/internal/gobackend/dot/matmul/avx2.RegisterAVX2ForTests
func registerProductsAVX2()

// internal/gobackend/dot/matmul/nosimd.go: func RegisterNoSIMDForTests().
//
//go:linkname registerProductsScalar github.com/gomlx/compute/internal/gobackend/dot/matmul.RegisterNoSIMDForTests
func registerProductsScalar()

// internal/gobackend/dot/registration.go: func FindRegisteredImplementation.
//
//go:linkname productOf github.com/gomlx/compute/internal/gobackend/dot.FindRegisteredImplementation
func productOf(layout int, in, out dtypes.DType) *productKernel

// internal/gobackend/dot/matmul/avx2/gen_small_bf16.go: func avx2SmallBFloat16Parallel.
//
//go:linkname smallBFloat16 github.com/gomlx/compute/internal/gobackend/dot/matmul/avx2.avx2SmallBFloat16Parallel
func smallBFloat16(backend unsafe.Pointer, layout int, lhs, rhs []bfloat16.BFloat16, batch, rows, columns, depth int, out []float32)

// AttentionAVX2 is the backend's attention for AVX2, see Attention.
// internal/gobackend/fusedops/avx2/sdpa.go: func DispatchSDPAAVX2.
//
//go:linkname AttentionAVX2 github.com/gomlx/compute/internal/gobackend/fusedops/avx2.DispatchSDPAAVX2
func AttentionAVX2(q, k, v, output []float32, qOff, kvOff, qSeqStride, kvSeqStride, qGroupStride int,
	additiveMask []float32, booleanMask []bool, maskGroupStride int, additiveBias []float32, biasGroupStride int,
	scores []float32, groupSize, seqLen, kvLen, headDim int, scale float32, causal bool, qLimit, kvLimit int) bool

// Exp32 is the exponential of the backend's kernels for the elements behind the last full
// vector. internal/fastmath/exp.go: func Exp32.
//
//go:linkname Exp32 github.com/gomlx/compute/internal/fastmath.Exp32
func Exp32(x float32) float32

// productKernel is dot.ImplementationRegistration in internal/gobackend/dot/registration.go.
type productKernel struct {
	_        string // name
	function any    // implFn
	_        int    // priority
}

// halves are the products of numbers of 16 bits: two layouts of two types.
var halves = [...]struct {
	layout int
	in     dtypes.DType
}{{0, dtypes.BFloat16}, {1, dtypes.BFloat16}, {0, dtypes.Float16}, {1, dtypes.Float16}}

// rightHalves are kernels of halves that compute right results. The backend's large ones
// for AVX2 (v0.1.14) multiply each fourth row with the numbers of the next term, so a
// quarter of their results is wrong. Its small one for bfloat16 is right at every size;
// float16, which no graph of this program uses, takes plain Go.
var rightHalves = func() (functions [len(halves)]any) {
	registerProductsScalar()
	for i, h := range halves {
		functions[i] = productOf(h.layout, h.in, dtypes.Float32).function
		if h.in == dtypes.BFloat16 {
			functions[i] = smallProduct(reflect.TypeOf(functions[i]))
		}
	}
	products = nil
	return functions
}()

// smallProduct returns smallBFloat16 as a function of the backend's type kind, which has no
// name outside the backend. Its last argument is scratch memory of the large kernels.
func smallProduct(kind reflect.Type) any {
	return reflect.MakeFunc(kind, func(a []reflect.Value) []reflect.Value {
		n := func(i int) int { return int(a[i].Int()) }
		smallBFloat16(a[0].UnsafePointer(), n(1), a[2].Interface().([]bfloat16.BFloat16), a[3].Interface().([]bfloat16.BFloat16),
			n(4), n(5), n(6), n(7), a[8].Interface().([]float32))
		return nil
	}).Interface()
}

// ReplaceWrongHalves replaces the products of numbers of 16 bits that the backend takes now,
// which are wrong for AVX2. No graph may be under construction.
func ReplaceWrongHalves() {
	for i, h := range halves {
		if p := productOf(h.layout, h.in, dtypes.Float32); p != nil { // nil with GOMLX_GO_DOT_MATMUL=0, which the backend reports
			p.function = rightHalves[i]
		}
	}
}

// KernelSet holds the kernels that the backend calls: sums, norms, products and attention.
type KernelSet struct {
	trailingSums, leadingSums, binaries, norms, attention, products unsafe.Pointer
	thresholds                                                      [3]unsafe.Pointer
}

// CurrentKernels returns the kernels that the backend calls now.
func CurrentKernels() KernelSet {
	return KernelSet{trailingSums, leadingSums, binaries, norms, attention, products, thresholds}
}

// Install makes the backend call the kernels of s. No graph may be under construction or
// executing.
func (s KernelSet) Install() {
	trailingSums, leadingSums, binaries, norms, attention, products = s.trailingSums, s.leadingSums, s.binaries, s.norms, s.attention, s.products
	thresholds = s.thresholds
}

// KernelsAVX2 returns the backend's kernels for AVX2 with attention f. It lets the backend
// register them as if no others had a higher priority, and restores the ones in use.
func KernelsAVX2(f Attention) KernelSet {
	defer CurrentKernels().Install()
	for _, p := range []*int{&trailingSumsPriority, &leadingSumsPriority, &binariesPriority, &normsPriority} {
		defer func(before int) { *p = before }(*p)
		*p = 0
	}
	products = nil
	registerSumsAVX2()
	registerNormsAVX2()
	registerProductsAVX2()
	ReplaceWrongHalves()
	SetAttentionKernel(f)
	thresholds = thresholdsAVX2
	return CurrentKernels()
}
