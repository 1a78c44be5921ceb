// Package buildinfo says what this binary is: version, toolchain, and whether
// the SIMD kernels were compiled in, without which the CPU backend is 15 to 22
// times slower. It owns no behaviour.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is the revision the binary was built from, "devel" when unknown.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	revision, dirty := "devel", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	return revision + dirty
}

// Line is the start-up line of every role.
func Line() string {
	simd := "SIMD on"
	if !SIMD {
		simd = "SIMD OFF: training and sampling run 15 to 22 times slower, build with GOEXPERIMENT=simd (./task build does)"
	}
	return fmt.Sprintf("temper %s, %s, %d cores, %s", Version(), runtime.Version(), runtime.GOMAXPROCS(0), simd)
}
