//go:build !goexperiment.simd || !amd64

package decode

import (
	"errors"

	"temper/trainer/cpu/kernels"
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
)

// errNone is why nothing here works in this binary.
var errNone = errors.New("built without SIMD for amd64")

// Network is empty in this binary.
type Network struct{}

// Pass is empty in this binary.
type Pass struct{}

// Check returns why a network cannot be decoded here with a choice of kernels.
func Check(model.Config, kernels.Choice) error { return errNone }

// NewNetwork returns an error.
func NewNetwork(model.Config, kernels.Choice, Layout, tensor.Lookup) (*Network, error) {
	return nil, errNone
}

// LayoutOf has no meaning in this binary.
func LayoutOf(model.Config) Layout { return Packed }

// InPlace is false: there is no network.
func (*Network) InPlace() bool { return false }

// NewPass is not called in this binary: Check has refused.
func NewPass(model.Config, int, int) *Pass { return &Pass{} }

// Use does nothing.
func (*Pass) Use(*Network) {}

// Copy does nothing.
func (*Pass) Copy(from, to, n int) {}

// Run returns an error.
func (*Pass) Run([]Token) error { return errNone }
