package sandboxtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/sandbox"
)

// Run checks the contract of every executor of real programs. The subtests use the executor
// that open returns one after the other; it may be shared.
func Run(t *testing.T, open func(t *testing.T) sandbox.Executor) {
	t.Helper()
	exec := open(t)
	runCases(t, exec, func(string, *sandbox.Request) bool { return true })
	t.Run("a context that ends kills the program", func(t *testing.T) { cancelled(t, exec) })
	t.Run("calls do not see each other", func(t *testing.T) { separate(t, exec) })
	t.Run("the same program gives the same answer", func(t *testing.T) { deterministic(t, exec) })
}

// runCases runs the table; adapt may change a request, and reports whether to run it.
func runCases(t *testing.T, exec sandbox.Executor, adapt func(name string, req *sandbox.Request) bool) {
	t.Helper()
	for _, c := range cases() {
		req := c.req
		if !adapt(c.name, &req) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			req.ID = t.Name()
			got, err := exec.Execute(t.Context(), req)
			if err != nil {
				t.Fatalf("Execute: %v", err)
			}
			want := c.want
			want.ID = req.ID
			want.SessionEnded = req.Session != "" && endsSession(c.req.Code, want.Status)
			if diff := cmp.Diff(got, want, cmpopts.IgnoreFields(sandbox.Result{}, "Usage", "Stderr", "Reason")); diff != "" {
				t.Errorf("result differs (-got +want):\n%s\nstderr: %s", diff, got.Stderr)
			}
			if !strings.Contains(got.Stderr, c.stderr) || c.stderr == "" && got.Stderr != "" {
				t.Errorf("stderr %q, want it to contain %q", got.Stderr, c.stderr)
			}
			if !strings.Contains(got.Reason, c.reason) || c.reason == "" && got.Reason != "" {
				t.Errorf("reason %q, want it to contain %q", got.Reason, c.reason)
			}
			if c.req.Limits.Wall == 0 && got.Usage.Wall <= 0 {
				t.Errorf("usage has no wall time: %+v", got.Usage)
			}
		})
	}
}

// endsSession reports whether a program with that outcome ends its kernel.
func endsSession(code string, status sandbox.Status) bool {
	switch status {
	case sandbox.StatusOK, sandbox.StatusError:
		return strings.Contains(code, "os._exit(")
	case sandbox.StatusRefused:
		return false
	default:
		return true
	}
}

type testCase struct {
	name   string
	req    sandbox.Request
	want   sandbox.Result
	stderr string // part of standard error; empty for none at all
	reason string // the same for the reason
}

func pythonError(kind, message string, line int, source string) *sandbox.PythonError {
	return &sandbox.PythonError{Type: kind, Message: message, Line: line, Source: source}
}

// cases is the table of programs and their answers.
func cases() []testCase {
	ok := func(stdout, value string) sandbox.Result {
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: stdout, Value: value}
	}
	failed := func(e *sandbox.PythonError) sandbox.Result {
		return sandbox.Result{Status: sandbox.StatusError, ExitCode: 1, Error: e}
	}
	code := func(lines ...string) sandbox.Request {
		return sandbox.Request{Code: strings.Join(lines, "\n")}
	}
	return []testCase{
		{name: "prints", req: code("print(1+1)"), want: ok("2\n", "")},
		{name: "empty program", req: code(""), want: ok("", "")},
		{name: "value of a last expression", req: code("x = 3", "x * 2"), want: ok("", "6")},
		{name: "value is a repr", req: code("'a\\n'"), want: ok("", `'a\n'`)},
		{name: "None is not shown", req: code("None"), want: ok("", "")},
		{name: "value has no address", req: code("object()"), want: ok("", "<object object at 0x0>")},
		{name: "output and value", req: code("print('a')", "1"), want: ok("a\n", "1")},
		{
			name: "standard error is separate", req: code("import sys", "print('e', file=sys.stderr)"),
			want: ok("", ""), stderr: "e\n",
		},
		{name: "standard input", req: sandbox.Request{Code: "print(input()[::-1], input())", Stdin: "ab\nc"}, want: ok("ba c\n", "")},
		{
			name: "end of standard input", req: code("input()"), stderr: "EOFError",
			want: failed(pythonError("EOFError", "EOF when reading a line", 1, "input()")),
		},
		{
			name: "fixture shares the namespace",
			req:  sandbox.Request{Code: "print(db['k1'])", Fixture: "db = {'k1': 'v1'}"}, want: ok("v1\n", ""),
		},
		{
			name: "fixture is not in a traceback",
			req:  sandbox.Request{Code: "\nlook('x')", Fixture: "def look(k):\n    return {}[k]"},
			want: failed(pythonError("KeyError", "'x'", 2, "look('x')")), stderr: "line 2, in <module>",
		},
		{
			name: "fixture that fails is refused", req: sandbox.Request{Code: "print(1)", Fixture: "1/0"},
			want:   sandbox.Result{Status: sandbox.StatusRefused, ExitCode: 1},
			reason: "fixture: ZeroDivisionError: division by zero",
		},
		{
			name: "uncaught exception", req: code("x = 1", "", "x / 0"), stderr: `File "main.py", line 3, in <module>`,
			want: failed(pythonError("ZeroDivisionError", "division by zero", 3, "x / 0")),
		},
		{
			name: "exception after output keeps the output", req: code("print('before')", "raise ValueError('no')"),
			stderr: "ValueError: no",
			want: sandbox.Result{
				Status: sandbox.StatusError, ExitCode: 1, Stdout: "before\n",
				Error: pythonError("ValueError", "no", 2, "raise ValueError('no')"),
			},
		},
		{
			name: "syntax error runs nothing", req: code("print(1)", "x ==== 2"), stderr: "SyntaxError",
			want: failed(pythonError("SyntaxError", "invalid syntax", 2, "x ==== 2")),
		},
		{
			name: "exit code", req: code("import sys", "print('a')", "sys.exit(3)"),
			want: sandbox.Result{Status: sandbox.StatusError, ExitCode: 3, Stdout: "a\n"},
		},
		{name: "exit zero", req: code("exit()"), want: ok("", "")},
		{
			name: "exit with a message", req: code("raise SystemExit('bye')"), stderr: "bye\n",
			want: sandbox.Result{Status: sandbox.StatusError, ExitCode: 1},
		},
		{
			name: "os._exit keeps what was printed", req: code("import os", "print('a')", "os._exit(7)"),
			want: sandbox.Result{Status: sandbox.StatusError, ExitCode: 7, Stdout: "a\n"},
		},
		{
			name: "bytes that are no text", req: code("import os", "_ = os.write(1, b'a\\xffb')"),
			want: ok("a\uFFFDb", ""),
		},
		{
			name: "future import", req: code("from __future__ import annotations", "def f(x: nowhere): pass", "1"),
			want: ok("", "1"),
		},
		{name: "main guard", req: code("if __name__ == '__main__':", "    print('main')"), want: ok("main\n", "")},
		{name: "dataclass", req: code("from dataclasses import dataclass", "@dataclass", "class A:", "    x: int", "A(1)"), want: ok("", "A(x=1)")},
		{name: "threads are joined", req: code("import threading, time", "threading.Thread(target=lambda: (time.sleep(.02), print('t'))).start()"), want: ok("t\n", "")},
		{
			name: "output is cut in the middle",
			req:  sandbox.Request{Code: "print('a'*40 + 'b'*40, end='')", Limits: sandbox.Limits{Output: 20}},
			want: ok(strings.Repeat("a", 10)+"...(truncated)..."+strings.Repeat("b", 10), ""),
		},
		{
			name: "wall time limit", req: sandbox.Request{Code: "print('in')\nimport time\ntime.sleep(60)", Limits: sandbox.Limits{Wall: 300 * time.Millisecond}},
			want: sandbox.Result{Status: sandbox.StatusTimeLimit, ExitCode: 137, Stdout: "in\n"}, reason: "wall time limit of 300ms",
		},
		{
			name: "cpu time limit", req: sandbox.Request{Code: "while True: pass", Limits: sandbox.Limits{CPU: time.Second, Wall: time.Minute}},
			want: sandbox.Result{Status: sandbox.StatusTimeLimit, ExitCode: 137}, reason: "cpu time limit of 1s",
		},
		{
			name: "memory limit", req: sandbox.Request{Code: "x = bytearray(1 << 30)", Limits: sandbox.Limits{Memory: 256 << 20}},
			want: sandbox.Result{
				Status: sandbox.StatusMemoryLimit, ExitCode: 1,
				Error: pythonError("MemoryError", "", 1, "x = bytearray(1 << 30)"),
			},
			stderr: "MemoryError", reason: "uncaught MemoryError",
		},
	}
}

// cancelled asserts that Execute returns at once when its context ends.
func cancelled(t *testing.T, exec sandbox.Executor) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := exec.Execute(ctx, sandbox.Request{ID: t.Name(), Code: "import time\ntime.sleep(60)"})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want %v", err, context.DeadlineExceeded)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("answered after %v", took)
	}
}

// separate asserts that a program cannot affect the next one.
func separate(t *testing.T, exec sandbox.Executor) {
	poison := "import math, sys, builtins\nmath.pi = 3\nbuiltins.len = None\nsys.x = 1\nopen('/tmp/left', 'w').write('x')\nleft = 1"
	look := "import math, sys, os\nprint(math.pi > 3.1, len('ab'), hasattr(sys, 'x'), os.listdir('/tmp'), 'left' in globals())"
	for i, code := range []string{poison, look} {
		res, err := exec.Execute(t.Context(), sandbox.Request{ID: t.Name() + code[:20], Code: code})
		if err != nil || res.Status != sandbox.StatusOK {
			t.Fatalf("program %d: %+v, %v", i, res, err)
		}
		if want := "True 2 False [] False\n"; i == 1 && res.Stdout != want {
			t.Errorf("second program printed %q, want %q", res.Stdout, want)
		}
	}
}

// deterministic asserts that hashing, identity and random numbers repeat.
func deterministic(t *testing.T, exec sandbox.Executor) {
	code := "import random\nclass A: pass\nclass B: pass\nprint({'a', 'b', 'c', 'd'}, random.random(), [c.__name__ for c in {A, B, int, str}], hash('x'))"
	var first string
	for i := range 8 {
		res, err := exec.Execute(t.Context(), sandbox.Request{ID: t.Name() + string(rune('0'+i)), Code: code})
		if err != nil || res.Status != sandbox.StatusOK {
			t.Fatalf("program: %+v, %v", res, err)
		}
		if i == 0 {
			first = res.Stdout
		}
		if res.Stdout != first {
			t.Errorf("run %d printed %q, the first %q", i, res.Stdout, first)
		}
	}
}
