//go:build integration

package judge_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/judge"
	"temper/sandbox/pool"
)

// realPool starts interpreters behind every layer that this machine has.
func realPool(t *testing.T, cfg jail.Config) *pool.Pool {
	t.Helper()
	j, err := jail.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	p, err := pool.New(t.Context(), pool.Config{Zygotes: 1}, pool.FromJail(j))
	if err != nil {
		t.Fatal(errors.Join(err, j.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(context.WithoutCancel(t.Context())), j.Close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// hasSympy reports whether the interpreter of the jail would find sympy.
func hasSympy(t *testing.T) bool {
	return exec.CommandContext(t.Context(), "python3", "-c", "import sympy").Run() == nil
}

// TestRealVerifier asks every question of the tables of a real interpreter, with
// and without sympy.
func TestRealVerifier(t *testing.T) {
	t.Run("sympy", func(t *testing.T) {
		if !hasSympy(t) {
			t.Skip("python3 has no sympy: the other half of this test holds what is decided then")
		}
		questions(t, realPool(t, jail.Config{}), judge.MethodSympy)
	})
	t.Run("fractions", func(t *testing.T) {
		questions(t, withoutSympy{realPool(t, jail.Config{})}, judge.MethodFractions, judge.MethodFloat)
	})
}

// withoutSympy hides sympy from the program of a request.
type withoutSympy struct{ sandbox.Executor }

// Execute implements sandbox.Executor.
func (w withoutSympy) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	req.Fixture = "import sys\nsys.modules['sympy'] = None"
	return w.Executor.Execute(ctx, req)
}

// undefined are formulas without a value: equal to nothing.
func undefined() []question {
	return []question{{"1/0", "0", false}, {`\ln 0`, "5", false}, {`\frac{x-x}{x-x}`, "1", false}}
}

func questions(t *testing.T, exec sandbox.Executor, methods ...judge.Method) {
	j := judge.New(exec, judge.Config{})
	all := append(table(), undefined()...)
	type asked struct {
		question
		job     judge.Math
		verdict judge.Verdict
		err     error
	}
	var jobs []*asked
	for i, q := range all {
		jobs = append(jobs, &asked{question: q, job: judge.Math{ID: fmt.Sprint(t.Name(), i), Answer: q.answer, Truth: q.truth}})
		if q.answer != "" {
			jobs = append(jobs, &asked{question: q, job: judge.Math{ID: fmt.Sprint(t.Name(), i, "turned"), Answer: q.truth, Truth: q.answer}})
		}
	}
	start := time.Now()
	var asking sync.WaitGroup
	for _, a := range jobs {
		asking.Go(func() { a.verdict, a.err = j.Do(t.Context(), a.job) })
	}
	asking.Wait()
	used := map[judge.Method]int{}
	for _, a := range jobs {
		used[a.verdict.Method]++
		if a.err != nil || a.verdict.Equal != a.equal {
			t.Errorf("%.50q and %.50q: %+v, %v", a.job.Answer, a.job.Truth, a.verdict, a.err)
		}
	}
	for _, m := range methods {
		if used[m] == 0 {
			t.Errorf("no verdict by %s: %v", m, used)
		}
	}
	t.Logf("%d questions in %v: %v", len(jobs), time.Since(start).Round(time.Millisecond), used)
}

// TestRealHostileAnswers holds that none is equal, none takes longer than the
// limits, and none is taken for a failure of the sandbox.
func TestRealHostileAnswers(t *testing.T) {
	p := realPool(t, jail.Config{})
	j := judge.New(p, judge.Config{})
	more := map[string]string{
		"expansion": "(x+y+z)^{9999}(a+b)^{9999}", "roots of roots": "((2^{1/3})^{9999})^{9999}", "exponentials": "e^{e^{e^{e^{9}}}}",
		"factorial of a variable": "(x^{99})!", "binomials": `\binom{x^{50}}{y^{50}}`, "wide": "x+" + fmt.Sprint(1<<40) + "y",
	}
	for name, answer := range hostile() {
		more[name] = answer
	}
	for name, answer := range more {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			v, err := j.Do(t.Context(), judge.Math{ID: t.Name(), Answer: answer, Truth: "5"})
			if err != nil || v.Equal || v.Method == "" {
				t.Errorf("%+v, %v", v, err)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
	v, err := j.Do(t.Context(), judge.Math{ID: t.Name(), Answer: `(x+1)^2`, Truth: "x^2+2x+1"})
	if err != nil || !v.Equal {
		t.Errorf("after the hostile ones: %+v, %v", v, err)
	}
}
