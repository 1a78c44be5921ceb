//go:build !gpu

package xlatest

func deviceName() string { return "xla:cpu" }
