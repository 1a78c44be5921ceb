//go:build !onnx

package device

const withONNX = false
