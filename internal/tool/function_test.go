package tool_test

import (
	"errors"
	"strings"
	"testing"

	"temper/internal/chat"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/tool"
	"temper/internal/tool/pyfile"
	"temper/sandbox"
	"temper/sandbox/sandboxtest"
)

const source = "def f(a: str):\n    'F.'\n    return a\n"

func newFunction(t *testing.T, fake *sandboxtest.Fake, text string) tool.Tool {
	t.Helper()
	f, problems := tool.NewFile("my.py", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return tool.NewSet(tool.Config{Executor: fake, Files: []tool.File{f}})["f"]
}

func callOf(arguments, fixture string) tool.Call {
	return tool.Call{ID: "id", Run: "r", Problem: &rl.Problem{ID: "p", Fixture: fixture}, Said: chat.Call{Name: "f", Arguments: arguments}}
}

// TestArgumentsAreData: they are on standard input and never in the program, which begins
// with the file, line by line.
func TestArgumentsAreData(t *testing.T) {
	fake := &sandboxtest.Fake{}
	evil := `{"a":"\"); import os #"}`
	if _, err := newFunction(t, fake, source).Call(t.Context(), callOf(evil, "x = 1")); err != nil {
		t.Fatal(err)
	}
	req := fake.Requests()[0]
	if !strings.HasPrefix(req.Code, source) || strings.Contains(req.Code, "import os") || req.Stdin != `{"name":"f","arguments":`+evil+`}` {
		t.Errorf("program %q with input %s", req.Code, req.Stdin)
	}
	if !strings.HasPrefix(req.Fixture, "x = 1\n") || req.ID != "id" || req.Run != "r" || req.Session != "" {
		t.Errorf("request %+v", req)
	}
}

// TestMarksTellCallsApart: another argument, fixture or file is another call.
func TestMarksTellCallsApart(t *testing.T) {
	f := newFunction(t, nil, source)
	same := f.Mark(callOf(`{"a":"x"}`, ""))
	if f.Mark(callOf(`{"a":"x"}`, "")) != same {
		t.Error("equal calls have two marks")
	}
	for name, mark := range map[string]uint64{
		"argument": f.Mark(callOf(`{"a":"y"}`, "")), "fixture": f.Mark(callOf(`{"a":"x"}`, "z")),
		"file": newFunction(t, nil, source+"#\n").Mark(callOf(`{"a":"x"}`, "")),
	} {
		if mark == same {
			t.Errorf("another %s has the same mark", name)
		}
	}
}

// TestTroubleOfASystemIsAnError, never an answer.
func TestTroubleOfASystemIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		res  sandbox.Result
		err  error
		want error
	}{
		"unavailable": {err: sandbox.ErrUnavailable, want: sandbox.ErrUnavailable},
		"internal":    {res: sandbox.Result{Status: sandbox.StatusInternal}},
		"fixture":     {res: sandbox.Result{Status: sandbox.StatusRefused, Reason: "fixture failed"}, want: tool.ErrFixture},
	} {
		fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) { return c.res, c.err }}
		_, err := newFunction(t, fake, source).Call(t.Context(), callOf("{}", "x"))
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
}

// TestProbeAsksAgain when the sandbox is overloaded, and blames no file for an outage.
func TestProbeAsksAgain(t *testing.T) {
	s, _ := pyfile.NewSource("my.py", []byte(source))
	answers := []error{&sandbox.Overloaded{RetryAfter: 1}, nil}
	fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		err := answers[0]
		answers = answers[1:]
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: "[]\n"}, err
	}}
	if err := (tool.Probe{Key: "k", Source: s, Run: "r"}).Ask(t.Context(), fake); err != nil || len(answers) > 0 {
		t.Errorf("%v, and %d answers are left", err, len(answers))
	}
	fake.Func = func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusInternal}, nil
	}
	if err := (tool.Probe{Key: "k", Source: s, Run: "r"}).Ask(t.Context(), fake); !errors.Is(err, sandbox.ErrUnavailable) || fault.Of(err) != "" {
		t.Errorf("an outage is %v of kind %q", err, fault.Of(err))
	}
}
