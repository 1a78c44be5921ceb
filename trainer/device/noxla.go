//go:build !xla

package device

const withXLA = false
