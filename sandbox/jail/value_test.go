package jail_test

import (
	"strings"
	"testing"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// TestValueOfTheLastLine holds programs whose last line looks like an expression of its own,
// rightly or not.
func TestValueOfTheLastLine(t *testing.T) {
	_, in := open(t, jail.Config{Heavy: []string{}})
	for _, c := range []struct {
		code, value, etype string
		line               int
	}{
		{code: "5", value: "5"},
		{code: "'doc'", value: "'doc'"},
		{code: "x = 1\nx # comment\n\n", value: "1"},
		{code: "x = 1; x", value: "1"},
		{code: "(y := 2)", value: "2"},
		{code: "[z for z in 'ab']", value: "['a', 'b']"},
		{code: "def f():\n    return g\ng = 7\nf()", value: "7"},
		{code: "from __future__ import annotations\ndef f(a: b): pass\nf.__annotations__", value: "{'a': 'b'}"},
		{code: "x = '''\n5'''\nx", value: `'\n5'`},
		{code: "'''a\n5'''", value: `'a\n5'`},
		{code: "x = (1 +\n2)"},
		{code: "x = 1 + \\\n2"},
		{code: "if 1:\n    x = 3\nx", value: "3"},
		{code: "x = 1\n\n\n1/0", etype: "ZeroDivisionError", line: 4},
		{code: "1/0\n5", etype: "ZeroDivisionError", line: 1},
		{code: "print(\n1/0)", etype: "ZeroDivisionError", line: 2},
		{code: "x = '''\n5", etype: "SyntaxError", line: 1},
		{code: "@f\nx", etype: "SyntaxError", line: 2},
		{code: "if 1:\nx", etype: "IndentationError", line: 2},
		{code: "x = (\n5", etype: "SyntaxError", line: 1},
		{code: "1\u00a0", etype: "SyntaxError", line: 1},
		{code: "yield 1", etype: "SyntaxError", line: 1},
	} {
		res := run(t, in, sandbox.Request{Code: c.code})
		var etype string
		var line int
		if res.Error != nil {
			etype, line = res.Error.Type, res.Error.Line
		}
		if res.Value != c.value || etype != c.etype || line != c.line || (etype == "" && res.Stderr != "") {
			t.Errorf("%q: value %q, error %q in line %d, want %q, %q, %d; %s", c.code, res.Value, etype, line, c.value, c.etype, c.line, res.Stderr)
		}
	}
}

// TestWarningsComeOnce holds programs that the compiler warns of.
func TestWarningsComeOnce(t *testing.T) {
	_, in := open(t, jail.Config{Heavy: []string{}})
	for _, code := range []string{"x = 5\nx is 5", "assert (1, 'x')\n2", "x = '''\n5\n'''; 1 is 1\nx"} {
		res := run(t, in, sandbox.Request{Code: "import sys\nsys.stderr.flush()\n" + code})
		if n := strings.Count(res.Stderr, "SyntaxWarning"); n != 1 {
			t.Errorf("%q: %d warnings, want 1: %s", code, n, res.Stderr)
		}
	}
}
