//go:build onnx

package device

import (
	_ "github.com/gomlx/compute-onnx" // given the library's path, it downloads nothing
)

const withONNX = true
