package jail_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// setup is a preamble of the length and with the imports of rStar2-Agent's own.
var setup = `import os, base64, sys, ast, traceback, linecache
from typing import Any, Optional
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

class Failure(Exception):
    """Says where a program failed."""
    def __init__(self, err: Exception, text: str, offset: int = 0):
        lines = text.splitlines()
        line = getattr(err, "lineno", None) or offset
        super().__init__(f"{type(err).__name__} at line {line}: {err}" + (lines[line - 1] if 0 < line <= len(lines) else ""))

class Runner:
    def __init__(self):
        self.space = {"__name__": "__main__", "__builtins__": __builtins__}

    def parts(self, text: str) -> tuple[str, Optional[str]]:
        last = ast.parse(text).body[-1]
        if isinstance(last, ast.Expr):
            lines = text.splitlines()
            return "\n".join(lines[: last.lineno - 1]), "\n".join(lines[last.lineno - 1 :])
        return text, None

    def run(self, text: str) -> None:
        body, last = self.parts(text)
        with redirect_stdout(sys.stdout), redirect_stderr(sys.stderr):
            exec(compile(body, "<string>", "exec"), self.space)
            value = last and eval(compile(last, "<string>", "eval"), self.space)
        if value is not None:
            print(repr(value))
` + strings.Repeat(`
def helper(value, more=(), **options):
    """Stands for what else a preamble has."""
    result = []
    for i, item in enumerate(more):
        if item in options or i > 3:
            result.append({"item": item, "value": options.get(item, value)})
    return [entry["value"] for entry in result if entry["item"]]
`, 9) + "runner = Runner()\n"

// inBase64 is a program as that client sends it.
func inBase64(program string) string {
	return setup + "program = base64.b64decode(\"" + base64.StdEncoding.EncodeToString([]byte(program)) +
		"\".encode()).decode()\nrunner.run(program)\n"
}

// TestWrappingCostsLittle: a program in base64 runs where its modules are imported
// already, and its preamble is not compiled again and again. Without either the factor
// is 3.7 for the shortest program and some 40 for one that imports sympy.
func TestWrappingCostsLittle(t *testing.T) {
	j, in := open(t, jail.Config{Heavy: []string{"colorsys", "sympy", "numpy"}})
	programs := map[string]string{"plain": "print(1+1)", "imports": "import colorsys\nprint(colorsys.rgb_to_hsv(0, 0, 0))"}
	for module, program := range map[string]string{
		"sympy": "from sympy import symbols, solve\nx = symbols('x')\nprint(solve(x**2 - 4, x))",
		"numpy": "import numpy as np\nprint(np.linalg.det(np.eye(3)))",
	} {
		if slices.Contains(j.Report().Heavy, module) {
			programs[module] = program
		}
	}
	for name, program := range programs {
		cheapest := [2]time.Duration{time.Hour, time.Hour}
		for range 25 {
			for i, code := range []string{program, inBase64(program)} {
				res := run(t, in, sandbox.Request{Code: code})
				if res.Status != sandbox.StatusOK {
					t.Fatalf("%s: %+v", name, res)
				}
				cheapest[i] = min(cheapest[i], res.Usage.CPU)
			}
		}
		t.Logf("%s: %v, in base64 %v", name, cheapest[0], cheapest[1])
		if cheapest[1] > 5*cheapest[0]/2 {
			t.Errorf("%s: %v of processor time in base64, %v without", name, cheapest[1], cheapest[0])
		}
	}
	if got := j.NumPreambles(); got != 1 {
		t.Errorf("%d preambles were compiled, want 1", got)
	}
	seen := "import sys\nprint('color' + 'sys' in sys.modules)\nimport colorsys"
	if res := run(t, in, sandbox.Request{Code: inBase64(seen)}); res.Stdout != "True\n" {
		t.Errorf("a program in base64 runs without its modules: %+v", res)
	}
}

// TestPreambleChangesNoAnswer: the first two calls with a preamble compile it with the
// program, the later ones find it compiled.
func TestPreambleChangesNoAnswer(t *testing.T) {
	_, in := open(t, jail.Config{Heavy: []string{}})
	literal := "data = base64.b64decode('" + base64.StdEncoding.EncodeToString([]byte("print('a program')")) + "')\n"
	for name, code := range map[string]string{
		"good":                       inBase64("x = 20\nx + 1"),
		"value":                      setup + literal + "data[:3]",
		"exception in the program":   inBase64("x = 1\n1/0"),
		"exception in the preamble":  setup + "def f(): 1/0\n" + literal + "f()\n",
		"exception in the last line": setup + literal + "x = 1\nx.nothing\n",
		"syntax error behind it":     setup + literal + "x = (\n",
		"syntax error in it":         setup + "x = = 1\n" + literal + "x\n",
		"ends within a block":        setup + "if data:\n    x = 2\nelse:\n    x = 3\n" + literal + "x\n",
		"goes on behind it":          setup + "if 1:\n    x = 2\n    " + literal + "    x += 1\nx\n",
		"within a string":            setup + "x = '''\n" + literal + "'''\nlen(x)\n",
		"within parentheses":         setup + "x = [\n1, base64.b64decode('eCA9IDEKcHJpbnQoeCk='),\n2]\nlen(x)\n",
		"future features":            "from __future__ import annotations\n" + setup + literal + "def f(x: nothing): pass\nf.__annotations__\n",
		"late future feature":        setup + literal + "from __future__ import annotations\n",
		"global":                     setup + "y = 1\n" + literal + "global y\ny\n",
		"letters beyond ASCII":       "s = 'äöü€'\n" + setup + literal + "s, 1/0\n",
	} {
		var answers []sandbox.Result
		for range 5 {
			answers = append(answers, run(t, in, sandbox.Request{Code: code}))
		}
		for i, got := range answers[1:] {
			if diff := cmp.Diff(answers[0], got, cmpopts.IgnoreFields(sandbox.Result{}, "Usage")); diff != "" {
				t.Errorf("%s: answer %d (-first +this):\n%s", name, i+2, diff)
			}
		}
	}
}

// TestLastStatement: the value, the lines of errors and what runs at all are those of
// the program as a whole, wherever its last statement begins.
func TestLastStatement(t *testing.T) {
	_, in := open(t, jail.Config{Heavy: []string{}})
	for code, want := range map[string]string{
		"x = 1\nx":                                          "ok 1",
		"x = 1; x":                                          "ok 1",
		"x = 1\n# end\n\n   \nx + 1\n# more\n":              "ok 2",
		"x = (1 +\n2)\n(x\n)":                               "ok 3",
		"x = '''\nx\n'''\nx":                                `ok '\nx\n'`,
		"'''\n1\n'''":                                       `ok '\n1\n'`,
		"x = 1\nif x:\n    x\nelse:\n    2":                 "ok ",
		"try:\n    1/0\nexcept Exception:\n 2":              "ok ",
		"x = [1,\n2\n]\nx[\n0\n]":                           "ok 1",
		"def f():\n    return 7\nf()":                       "ok 7",
		"import functools\n@functools.cache\ndef f(): pass": "ok ",
		"x = 1 + \\\n2\nx":                                  "ok 3",
		"print('ran')\nx = (":                               "error line 2",
		"print('ran')\nx = = 1\ny":                          "error line 2",
		"x = 1\n\n1/0":                                      "error line 3",
		"x = 1\n1/0\nx":                                     "error line 2",
		"x = 1\nglobal x\nx":                                "error line 2",
		"x = 1\nfrom __future__ import division":            "error line 2",
		"x = 1\nreturn x":                                   "error line 2",
		"from __future__ import annotations\nf = lambda: 0\ndef g(x: y): pass\ng.__annotations__": "ok {'x': 'y'}",
	} {
		res := run(t, in, sandbox.Request{Code: code})
		got := fmt.Sprintf("%s %s", res.Status, res.Value)
		if res.Error != nil {
			got = fmt.Sprintf("%s line %d", res.Status, res.Error.Line)
		}
		if got != want || strings.Contains(res.Stdout, "ran") {
			t.Errorf("%q: got %s %q, want %s", code, got, res.Stdout, want)
		}
	}
}
