package jail

import (
	"strings"
	"testing"
	"time"

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
	} {
		if got := usesAny(sandbox.Request{Code: text}, modules); got != want {
			t.Errorf("%.60q: got %v, want %v", text, got, want)
		}
	}
	if !usesAny(sandbox.Request{Fixture: "import numpy"}, modules) || !usesAny(sandbox.Request{History: []string{"1", "import numpy"}}, modules) {
		t.Error("fixture and history are not looked at")
	}
}

// TestUsesIsLinear holds for texts made to be slow.
func TestUsesIsLinear(t *testing.T) {
	start := time.Now()
	usesAny(sandbox.Request{Code: strings.Repeat("numpy ", maxSource/6)}, []string{"numpy"})
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}
