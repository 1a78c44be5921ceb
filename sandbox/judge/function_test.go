package judge_test

import (
	"errors"
	"testing"

	"temper/sandbox"
	"temper/sandbox/judge"
	"temper/sandbox/sandboxtest"
)

// TestScore: one line of JSON is a score, and whatever else a program does is a failure
// with a reason, never a score of 0.
func TestScore(t *testing.T) {
	for name, c := range map[string]struct {
		res    sandbox.Result
		want   judge.Score
		line   int
		reason string
	}{
		"score":        {res: sandbox.Result{Status: sandbox.StatusOK, Stdout: "noise\n{\"reward\": 0.5, \"details\": {\"a\": 1}}\n"}, want: judge.Score{Reward: 0.5, Details: `{"a": 1}`}},
		"zero":         {res: sandbox.Result{Status: sandbox.StatusOK, Stdout: `{"reward": 0, "details": null}`}},
		"bad":          {res: sandbox.Result{Status: sandbox.StatusOK, Stdout: `{"bad": "it is"}`}, reason: "it is"},
		"nothing":      {res: sandbox.Result{Status: sandbox.StatusOK}, reason: "ended without a result"},
		"no number":    {res: sandbox.Result{Status: sandbox.StatusOK, Stdout: `{"reward": null}`}, reason: "ended without a result"},
		"exception":    {res: sandbox.Result{Status: sandbox.StatusError, Error: &sandbox.PythonError{Type: "KeyError", Message: "'x'", Line: 4}}, line: 4, reason: "KeyError: 'x'"},
		"exit":         {res: sandbox.Result{Status: sandbox.StatusError, ExitCode: 2}, reason: "ended with exit status 2"},
		"time limit":   {res: sandbox.Result{Status: sandbox.StatusTimeLimit, Reason: "2s"}, reason: "time_limit: 2s"},
		"memory limit": {res: sandbox.Result{Status: sandbox.StatusMemoryLimit}, reason: "memory_limit"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) { return c.res, nil }}
			got, err := judge.New(fake).Score(t.Context(), judge.Function{ID: "1", Program: "p", Stdin: "{}"})
			var f *judge.Failure
			if c.reason == "" && (err != nil || got != c.want) {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
			if c.reason != "" && (!errors.As(err, &f) || f.Reason != c.reason || f.Line != c.line) {
				t.Errorf("error %v, want %q of line %d", err, c.reason, c.line)
			}
		})
	}
	down := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusInternal}, nil
	}}
	var f *judge.Failure
	if _, err := judge.New(down).Score(t.Context(), judge.Function{ID: "1"}); !errors.Is(err, sandbox.ErrUnavailable) || errors.As(err, &f) {
		t.Errorf("an outage is %v", err)
	}
}
