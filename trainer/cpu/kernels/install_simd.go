//go:build goexperiment.simd && amd64

package kernels

import (
	"temper/trainer/cpu/attention"
	"temper/trainer/gomlxhooks"
)

// tables is the attention that this process starts with: the backend's own, which also
// reads tables. Later a graph could be executing.
var tables = func() attentionFunc {
	fast := map[Variant]func(*lookup) bool{AVX512: attend16, AVX2: attend8}[nativeVariant()]
	f := withTables(gomlxhooks.AttentionKernel(), fast, blocksOf(nativeVariant()))
	gomlxhooks.SetAttentionKernel(f)
	if nativeVariant() == AVX2 {
		gomlxhooks.ReplaceWrongHalves()
	}
	return f
}()

// blocksOf returns the kernels of a variant for whole sequences.
func blocksOf(v Variant) *attention.Kernels {
	switch v {
	case AVX512:
		return attention.AVX512()
	case AVX2:
		return attention.AVX2()
	case Scalar:
	}
	return attention.Scalar()
}

// sets holds the kernels of both choices, once the first caller needs them.
var sets map[Choice]gomlxhooks.KernelSet

// install makes the backend call the kernels of a choice. Only turns calls it.
func install(c Choice) {
	if sets == nil {
		sets = map[Choice]gomlxhooks.KernelSet{
			Native:   gomlxhooks.CurrentKernels(),
			Portable: gomlxhooks.KernelsAVX2(withTables(gomlxhooks.AttentionAVX2, attend8, blocksOf(AVX2))),
		}
	}
	sets[c].Install()
}
