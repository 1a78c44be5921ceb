package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"temper/sandbox"
)

// RunSessions checks the contract of every executor with sessions, beside Run. The subtests
// use the executor that open returns one after the other.
func RunSessions(t *testing.T, open func(t *testing.T) sandbox.Executor) {
	t.Helper()
	exec := open(t)
	t.Run("session: a first cell is answered as a call", func(t *testing.T) {
		runCases(t, exec, func(name string, req *sandbox.Request) bool {
			req.Session, req.History = t.Name()+name, []string{} // an empty history begins the session
			// A notebook does not wait for threads; without its fixture nothing is run.
			return name != "threads are joined" && name != "fixture that fails is refused"
		})
	})
	for _, c := range scripts() {
		t.Run("session: "+c.name, func(t *testing.T) {
			for i, step := range c.steps {
				step.play(t, exec, t.Name(), i)
			}
		})
	}
	t.Run("session: names and runs are apart", func(t *testing.T) { apart(t, exec) })
	t.Run("session: cells run in order", func(t *testing.T) { ordered(t, exec) })
	t.Run("session: branches go their own ways", func(t *testing.T) { branched(t, exec) })
	t.Run("session: one that is lost or new shows", func(t *testing.T) { lost(t, exec) })
	t.Run("session: a caller that goes away costs the cell only", func(t *testing.T) { abandoned(t, exec) })
}

// step is one cell and its answer.
type step struct {
	code    string
	stdin   string
	fixture string
	history []string
	inputs  []string // HistoryStdin
	limits  sandbox.Limits

	status sandbox.Status // ok when empty
	stdout string
	value  string
	stderr string // part of it
	reason string // the same
}

func (s step) play(t *testing.T, exec sandbox.Executor, session string, i int) {
	t.Helper()
	req := sandbox.Request{
		ID: fmt.Sprintf("%s/%d", session, i), Session: session, Code: s.code, Stdin: s.stdin,
		Fixture: s.fixture, History: s.history, HistoryStdin: s.inputs, Limits: s.limits,
	}
	got, err := exec.Execute(t.Context(), req)
	if err != nil {
		t.Fatalf("cell %d: %v", i, err)
	}
	want := s.status
	if want == "" {
		want = sandbox.StatusOK
	}
	if want == sandbox.StatusOutputLimit {
		got.Stdout = "" // the kept part of a flood
	}
	if got.ID != req.ID || got.Status != want || got.Stdout != s.stdout || got.Value != s.value {
		t.Errorf("cell %d %q: got %+v, want %s, output %q, value %q", i, s.code, got, want, s.stdout, s.value)
	}
	if got.SessionEnded != endsSession(s.code, want) {
		t.Errorf("cell %d %q: session ended: %t", i, s.code, got.SessionEnded)
	}
	if !strings.Contains(got.Stderr, s.stderr) || !strings.Contains(got.Reason, s.reason) {
		t.Errorf("cell %d %q: standard error %q, want %q; reason %q, want %q", i, s.code, got.Stderr, s.stderr, got.Reason, s.reason)
	}
}

type script struct {
	name  string
	steps []step
}

// scripts is the table of sessions.
func scripts() []script {
	short := sandbox.Limits{Wall: 300 * time.Millisecond}
	secret := "def look(k):\n    return {'a': 1}[k]\nprint('hidden')"
	return []script{
		{"variables survive", []step{
			{code: "x = 3"}, {code: "def f(n): return n * x"}, {code: "f(2)", value: "6"}, {code: "_ + 1", value: "7"},
			{code: "import math"}, {code: "print(math.floor(2.5))", stdout: "2\n"},
		}},
		{"an error keeps what came before it", []step{
			{code: "a = 1\nb = a / 0\nc = 2", status: sandbox.StatusError, stderr: `File "main.py", line 2, in <module>`},
			{code: "a", value: "1"},
			{code: "c", status: sandbox.StatusError, stderr: "NameError"},
		}},
		{"an error in an earlier cell's function shows its source", []step{
			{code: "def f():\n    return 1 / 0"},
			{code: "f()", status: sandbox.StatusError, stderr: "File \"cell-1.py\", line 2, in f\n    return 1 / 0"},
		}},
		{"exit ends the cell", []step{
			{code: "x = 1\nraise SystemExit"}, {code: "x", value: "1"},
		}},
		{"a cell that is stopped leaves no trace", []step{
			{code: "x = [1]"}, {code: "x.append(2)"},
			{code: "x.append(3)\nimport time\ntime.sleep(60)", limits: short, status: sandbox.StatusTimeLimit, reason: "300ms"},
			{code: "x", value: "[1, 2]"},
			{code: "x.append(4)\nwhile True: print('z' * 1000)", status: sandbox.StatusOutputLimit, reason: "wrote more"},
			{code: "x", value: "[1, 2]"},
			{code: "import os\nx.append(5)\nos._exit(7)", status: sandbox.StatusError},
			{code: "x", value: "[1, 2]"},
		}},
		{"the first cell is stopped", []step{
			{code: "x = 1\nimport time\ntime.sleep(60)", limits: short, status: sandbox.StatusTimeLimit},
			{code: "x", status: sandbox.StatusError, stderr: "NameError"},
		}},
		{"standard input belongs to its cell, also when it is replayed", []step{
			{code: "x = input()", stdin: "one\ntwo"}, {code: "input()", status: sandbox.StatusError, stderr: "EOFError"},
			{code: "import time\ntime.sleep(60)", limits: short, status: sandbox.StatusTimeLimit},
			{code: "x", value: "'one'"},
		}},
		{"a fixture is there and invisible, also after a loss", []step{
			{fixture: secret, code: "look('a')", value: "1"},
			{fixture: secret, code: "import time\ntime.sleep(60)", limits: short, status: sandbox.StatusTimeLimit},
			{fixture: secret, code: "look('b')", status: sandbox.StatusError, stderr: "line 1, in <module>"},
			{fixture: "1", code: "2", status: sandbox.StatusRefused, reason: "fixture differs"},
			{fixture: secret, code: "look('a')", value: "1"},
		}},
		{"a fixture that fails is refused", []step{
			{fixture: "1/0", code: "1", status: sandbox.StatusRefused, reason: "fixture: ZeroDivisionError: division by zero"},
			{code: "1", value: "1"},
		}},
		{"a history is run where the session is new", []step{
			{
				history: []string{"x = [1]\nprint('hidden')", "x.append(2)\n1/0", "import os\nos._exit(3)", "x.append(3)"},
				code:    "x", value: "[1, 2, 3]",
			},
			{code: "x", value: "[1, 2, 3]"},
		}},
		{"a history of other cells is believed, one of the same changes nothing", []step{
			{code: "x = [input()]", stdin: "1"}, {code: "x.append(2)"},
			{history: []string{"x = [input()]", "x.append(2)"}, code: "x.append(3)\nx", value: "['1', 2, 3]"},
			{history: []string{"x = [input()]", "x.append(9)"}, code: "x", value: "['1', 9]"},
			{history: []string{"x = [7]"}, code: "x", value: "[7]"},
			{history: []string{}, code: "x", status: sandbox.StatusError, stderr: "NameError"},
		}},
		{"a history has its inputs", []step{
			{
				history: []string{"x = [input()]", "x.append(input())", "x.append(3)"}, inputs: []string{"1", "2"},
				code: "x.append(input())\nx", stdin: "4", value: "['1', '2', 3, '4']",
			},
			{
				history: []string{"x = [input()]", "x.append(input())", "x.append(3)", "x.append(input())\nx"}, inputs: []string{"1", "2", "", "4"},
				code: "x.append(5)\nx", value: "['1', '2', 3, '4', 5]",
			},
			{history: []string{"x = [input()]"}, inputs: []string{"6"}, code: "x", value: "['6']"},
			{history: []string{"x"}, inputs: []string{"", ""}, code: "x", status: sandbox.StatusRefused, reason: "2 inputs for the 1 cells"},
		}},
	}
}

// apart asserts that a session is reached only by its run and name.
func apart(t *testing.T, exec sandbox.Executor) {
	type place struct{ run, session string }
	places := []place{{"", "s"}, {"a", "s"}, {"b", "s"}, {"a", "t"}, {"a/s", ""}, {"a", "s/t"}, {"a/s", "t"}}
	call := func(p place, code string) sandbox.Result {
		res, err := exec.Execute(t.Context(), sandbox.Request{
			ID: fmt.Sprint(t.Name(), p, code), Run: t.Name() + p.run, Session: p.session, Code: code,
		})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for i, p := range places {
		res := call(p, fmt.Sprintf("seen = 'x' in globals()\nx = %d\nopen('/tmp/x', 'w').write('%d')\nseen", i, i))
		if res.Value != "False" {
			t.Errorf("%+v sees the variables of another: %+v", p, res)
		}
	}
	for i, p := range places {
		want := fmt.Sprintf("(%d, '%d')", i, i)
		if p.session == "" {
			continue // without a session nothing is kept
		}
		if res := call(p, "x, open('/tmp/x').read()"); res.Value != want {
			t.Errorf("%+v: got %+v, want %s", p, res, want)
		}
	}
}

// ordered asserts that cells sent together run one after the other.
func ordered(t *testing.T, exec sandbox.Executor) {
	var calls sync.WaitGroup
	for i := range 8 {
		calls.Go(func() {
			res, err := exec.Execute(t.Context(), sandbox.Request{
				ID: fmt.Sprint(t.Name(), i), Session: t.Name(),
				Code: "import time\nn = globals().get('n', 0)\nm = n\ntime.sleep(.005)\nn = m + 1",
			})
			if err != nil || res.Status != sandbox.StatusOK {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
	calls.Wait()
	step{code: "n", value: "8"}.play(t, exec, t.Name(), 99)
}

func abandoned(t *testing.T, exec sandbox.Executor) {
	step{code: "x = 1"}.play(t, exec, t.Name(), 0)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := exec.Execute(ctx, sandbox.Request{ID: t.Name(), Session: t.Name(), Code: "x = 2\nimport time\ntime.sleep(60)"})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 5*time.Second {
		t.Errorf("got error %v after %v", err, time.Since(start))
	}
	step{code: "x", value: "1"}.play(t, exec, t.Name(), 1)
}

// branched asserts that a branch starts in the state of its parent and shares nothing with
// it.
func branched(t *testing.T, exec sandbox.Executor) {
	cell := func(session, parent, code string) sandbox.Result {
		t.Helper()
		req := sandbox.Request{ID: t.Name() + session + code, Session: t.Name() + session, Code: code}
		if parent != "" {
			req.BranchOf = t.Name() + parent
		}
		res, err := exec.Execute(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	cell("p", "", "x = [1]")
	cell("p", "", "x.append(2)\n1/0")
	for _, name := range []string{"a", "b"} {
		if res := cell(name, "p", "x.append('"+name+"')\nx"); res.Value != "[1, 2, '"+name+"']" || res.SessionNew {
			t.Errorf("the first cell of a branch: %+v", res)
		}
	}
	cell("p", "", "x.append('p')\nopen('/tmp/p', 'w').write('1')")
	if res := cell("c", "p", "import os\nx, os.listdir('/tmp')"); res.Value != "([1, 2, 'p'], ['p'])" {
		t.Errorf("a branch of a session with a file: %+v", res)
	}
	cell("a", "", "import os\nos._exit(1)") // the next cell rebuilds its kernel
	for name, want := range map[string]string{"a": "[1, 2, 'a']", "b": "[1, 2, 'b']", "p": "[1, 2, 'p']"} {
		if res := cell(name, "", "x"); res.Value != want {
			t.Errorf("session %s: got %+v, want %s", name, res, want)
		}
	}
	if res := cell("b", "p", "y"); res.Status != sandbox.StatusRefused {
		t.Errorf("a branch that exists: got %+v, want a refusal", res)
	}
}

// lost asserts the errors for a session in an unexpected state.
func lost(t *testing.T, exec sandbox.Executor) {
	call := func(code, parent string, cells int) (sandbox.Result, error) {
		req := sandbox.Request{ID: fmt.Sprint(t.Name(), code, cells), Session: t.Name(), Code: code, BranchOf: parent}
		if cells >= 0 {
			req.SessionCells = &cells
		}
		return exec.Execute(t.Context(), req)
	}
	fails := func(name, parent string, cells int) {
		t.Helper()
		if res, err := call("lost", parent, cells); !errors.Is(err, sandbox.ErrSessionLost) || errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("%s: got %+v, %v, want ErrSessionLost", name, res, err)
		}
	}
	fails("a session that nobody knows", "", 3)
	fails("a branch of nobody", t.Name()+"nobody", -1)
	if res, err := call("x = 1", "", -1); err != nil || !res.SessionNew {
		t.Errorf("a first cell: %+v, %v, want session_new", res, err)
	}
	if res, err := call("x", "", 1); err != nil || res.SessionNew || res.Value != "1" {
		t.Errorf("a second cell: %+v, %v", res, err)
	}
	fails("another number of cells", "", 1)
}
