package buildinfo_test

import (
	"runtime"
	"strings"
	"testing"

	"temper/internal/proc/buildinfo"
)

// TestLineTellsOfSIMD: a build without it must be seen at the first glance.
func TestLineTellsOfSIMD(t *testing.T) {
	line := buildinfo.Line()
	if !strings.HasPrefix(line, "temper "+buildinfo.Version+" ("+buildinfo.Revision()+"), ") || !strings.Contains(line, runtime.Version()) || strings.Contains(line, "\n") {
		t.Errorf("line %q", line)
	}
	if strings.Contains(line, "SIMD OFF") == buildinfo.SIMD || strings.Contains(line, "SIMD on") != buildinfo.SIMD {
		t.Errorf("SIMD is %v, the line says %q", buildinfo.SIMD, line)
	}
}
