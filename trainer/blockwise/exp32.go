//go:build goexperiment.simd && amd64

package blockwise

import (
	_ "unsafe" // for the link

	_ "github.com/gomlx/compute/gobackend" // owns exp32
)

//go:linkname exp32 github.com/gomlx/compute/internal/fastmath.Exp32
func exp32(float32) float32
