// Package buildinfo holds the version of Temper and what is known of this binary: revision,
// toolchain, build tags, and whether the SIMD kernels were compiled in, without which the
// CPU backend is 15 to 22 times slower. It owns no behaviour.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is the release of Temper that this source is. No other place states it.
const Version = "v0.1.0"

// Build is the version with the revision that the binary was built from: v0.1.0-1c4419396af0
// or v0.1.0-devel, with +dirty behind it for a changed work tree.
func Build() string { return Version + "-" + Revision() }

// Tags are the build tags of the binary, separated by commas; "none" without any.
func Tags() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "none"
	}
	for _, s := range info.Settings {
		if s.Key == "-tags" && s.Value != "" {
			return s.Value
		}
	}
	return "none"
}

// Revision is the commit that the binary was built from, "devel" when unknown.
func Revision() string {
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
	return fmt.Sprintf("temper %s (%s), %s, tags %s, %d cores, %s", Version, Revision(), runtime.Version(), Tags(), runtime.GOMAXPROCS(0), simd)
}
