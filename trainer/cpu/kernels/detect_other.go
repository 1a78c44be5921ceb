//go:build !goexperiment.simd || !amd64

package kernels

import (
	"os"
	"strconv"

	"golang.org/x/sys/cpu"
)

// elementwise names the functions of package math.
func elementwise() string { return "scalar" }

// vectorLanes is one: softmax adds term by term.
func vectorLanes() int { return 1 }

func nativeVariant() Variant { return Scalar }

// nativeDepth does not change the speed here; it keeps the depth of the CPU's variant.
func nativeDepth() int {
	x := cpu.X86
	wide := x.HasAVX512F && x.HasAVX512BW && x.HasAVX512CD && x.HasAVX512DQ && x.HasAVX512VL
	if on, err := strconv.ParseBool(os.Getenv("GOMLX_GO_SIMD_AVX512")); err == nil && !on {
		wide = false
	}
	if wide {
		return depths[AVX512]
	}
	return depths[AVX2]
}

// features decide the bits of package math alone, which uses FMA if the CPU has it.
func features() []string {
	if cpu.X86.HasFMA {
		return []string{"fma"}
	}
	return nil
}
