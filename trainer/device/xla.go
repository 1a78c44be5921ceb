//go:build xla

package device

import (
	_ "github.com/gomlx/go-xla/compute/xla" // without its installer, so that nothing is downloaded
)

const withXLA = true
