//go:build !goexperiment.simd || !amd64

package kernels

import (
	"temper/trainer/cpu/attention"
	"temper/trainer/gomlxhooks"
)

// tables is the attention that this process starts with. It also reads tables.
var tables = func() attentionFunc {
	f := withTables(nil, nil, attention.Scalar())
	gomlxhooks.SetAttentionKernel(f)
	return f
}()

// install does nothing: this build has one set of kernels.
func install(Choice) {}
