//go:build gpu

package xlatest

import "flag"

var named = flag.String("device", "xla:cuda", "backend on which the tests of XLA run, such as xla:cuda, xla:rocm or xla:cpu")

func deviceName() string { return *named }
