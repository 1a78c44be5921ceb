package jail

import (
	"encoding/base64"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

func TestUsesLooksForImportsAndAttributes(t *testing.T) {
	modules := []string{"numpy", "numpy.random", "sympy"}
	for text, want := range map[string]bool{
		"import numpy":                             true,
		"import numpy as np":                       true,
		"import os, math, sympy":                   true,
		"from sympy import *":                      true,
		"from numpy.random import default_rng":     true,
		"try: import numpy\nexcept: pass":          true,
		"x = 1; import numpy":                      true,
		"__import__('numpy').ones(3)":              true,
		"importlib.import_module(\"sympy\")":       true,
		"exec('import numpy')":                     true,
		"numpy.ones(3)":                            true,
		"print('numpy is large')":                  false,
		"# import numpy":                           false,
		"x = 1 # numpy.ones would do":              false,
		"import numpyro":                           false,
		"import mynumpy":                           false,
		"from jax.numpy import x":                  false,
		"the_numpy = 1":                            false,
		"# no numpy here\nimport numpy":            true,
		"":                                         false,
		"numpy":                                    false,
		"print('about numpy.')":                    false,
		strings.Repeat("x", 300) + " import numpy": true,
		wrapped("import numpy"):                    true,
		wrapped("x = 1\nfrom sympy import *\n"):    true,
		wrapped("print('about numpy')"):            false,
		wrapped("import math"):                     false,
		`x = "` + strings.Repeat("=", 50) + `"`:    false,
		`"aW1wb3J0IG51bXB5`:                        false, // no literal: it does not end
	} {
		if got := usesAny(sandbox.Request{Code: text}, modules); got != want {
			t.Errorf("%.60q: got %v, want %v", text, got, want)
		}
	}
	if !usesAny(sandbox.Request{Fixture: "import numpy"}, modules) || !usesAny(sandbox.Request{History: []string{"1", "import numpy"}}, modules) {
		t.Error("fixture and history are not looked at")
	}
}

// wrapped is a program as rStar2-Agent's client sends it: in base64, behind a preamble
// that runs it.
func wrapped(program string) string {
	return "import base64, traceback\n" +
		"program = base64.b64decode(\"" + base64.StdEncoding.EncodeToString([]byte(program)) + "\".encode()).decode()\nexec(program)\n"
}

// TestWrappedProgramHasItsModules: the preamble does not hide what the program imports
// from the choice of an interpreter.
func TestWrappedProgramHasItsModules(t *testing.T) {
	for _, history := range []int{0, 3} {
		text := strings.Repeat(wrapped("x = 1"), history) + wrapped("import sympy\nprint(sympy.factorint(12))")
		if !usesAny(sandbox.Request{Code: text}, DefaultHeavy()) {
			t.Errorf("behind %d other programs sympy is not seen", history)
		}
	}
}

// TestUsesIsLinear holds for texts made to be slow.
func TestUsesIsLinear(t *testing.T) {
	for name, source := range map[string]func(n int) string{
		"words":    func(n int) string { return strings.Repeat("numpy ", n/6) },
		"quotes":   func(n int) string { return strings.Repeat("'", n) },
		"literals": func(n int) string { return strings.Repeat("'"+strings.Repeat("x", 20)+"=", n/22) },
		"padding":  func(n int) string { return "'x" + strings.Repeat("=", n-2) },
	} {
		// Eight times the text takes eight times as long, and 64 times where it is read again
		// and again. Little of it is measured in the shorter one, hence the millisecond.
		short, long := usesTime(t, source(maxSource/8)), usesTime(t, source(maxSource))
		if long > 24*(short+time.Millisecond) {
			t.Errorf("%s: %v of processor time for %d bytes, %v for %d", name, short, maxSource/8, long, maxSource)
		}
	}
}

// usesTime is the least processor time of three looks at a source.
func usesTime(t *testing.T, source string) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var at unix.Timespec // exact, where the usage of resources may count in ticks of 4 ms
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
			t.Fatal(err)
		}
		return time.Duration(at.Nano())
	}
	least := time.Duration(math.MaxInt64)
	for range 3 {
		start := now()
		usesAny(sandbox.Request{Code: source}, []string{"numpy"})
		least = min(least, now()-start)
	}
	return least
}
