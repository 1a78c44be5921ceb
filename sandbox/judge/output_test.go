package judge_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/sandbox"
	"temper/sandbox/judge"
	"temper/sandbox/sandboxtest"
)

func TestOutput(t *testing.T) {
	ok := func(stdout string) sandbox.Result { return sandbox.Result{Status: sandbox.StatusOK, Stdout: stdout} }
	tests := map[string]struct {
		res      sandbox.Result
		expected string
		compare  judge.Compare
		want     bool
	}{
		"same":                         {ok("a b\n"), "a b", "", true},
		"blanks at both ends":          {ok("\n a b\t\n"), "a b\n", "", true},
		"blanks inside":                {ok("a  b"), "a b", "", false},
		"nothing and nothing":          {ok("\n"), "", "", true},
		"nothing":                      {ok(""), "a", "", false},
		"exact":                        {ok("a\n"), "a\n", judge.CompareExact, true},
		"exact differs by a newline":   {ok("a\n"), "a", judge.CompareExact, false},
		"lines":                        {ok("a \nb\r\n\n"), "a\nb", judge.CompareLines, true},
		"lines keep their indentation": {ok("a\n b"), "a\nb", judge.CompareLines, false},
		"lines keep empty ones":        {ok("a\n\nb"), "a\nb", judge.CompareLines, false},
		"tokens":                       {ok("a   b\nc"), "a\nb c", judge.CompareTokens, true},
		"tokens in order":              {ok("b a"), "a b", judge.CompareTokens, false},
		"cut output":                   {ok("aa...(truncated)...aa"), "aaaa", judge.CompareTokens, false},
		"failed with the right output": {sandbox.Result{Status: sandbox.StatusError, Stdout: "a"}, "a", "", false},
		"time limit":                   {sandbox.Result{Status: sandbox.StatusTimeLimit, Stdout: "a"}, "a", "", false},
		"output limit":                 {sandbox.Result{Status: sandbox.StatusOutputLimit, Stdout: "a"}, "a", "", false},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) { return c.res, nil }}
			job := judge.Output{ID: "id", Run: "run", Code: "code", Stdin: "in", Fixture: "fix", Expected: c.expected, Compare: c.compare, Limits: sandbox.Limits{Wall: time.Second, Output: 1}}
			v, err := judge.New(fake, judge.Config{}).Do(t.Context(), job)
			if err != nil || v.Equal != c.want || v.Method != judge.MethodOutput || v.Equal == (v.Reason != "") {
				t.Errorf("%+v, %v; want %v", v, err, c.want)
			}
			want := sandbox.Request{
				ID: "id", Run: "run", Code: "code", Stdin: "in", Fixture: "fix",
				Limits: sandbox.Limits{Wall: time.Second, Output: int64(len(c.expected)) + 64<<10},
			}
			if diff := cmp.Diff(fake.Requests(), []sandbox.Request{want}); diff != "" {
				t.Errorf("request differs (-got +want):\n%s", diff)
			}
		})
	}
	v, err := judge.New(unused(t), judge.Config{}).Do(t.Context(), judge.Output{ID: "1", Code: strings.Repeat("#", 2<<20)})
	if err != nil || v.Equal || v.Method != judge.MethodRefused {
		t.Errorf("endless code: %+v, %v", v, err)
	}
}

// crowded refuses what is above its slots.
type crowded struct {
	slots, busy, most atomic.Int64
}

// Execute implements sandbox.Executor.
func (c *crowded) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	defer c.busy.Add(-1)
	if c.busy.Add(1) > c.slots.Load() {
		return sandbox.Result{}, &sandbox.Overloaded{Detail: "full", RetryAfter: 70 * time.Millisecond}
	}
	c.most.Store(max(c.most.Load(), c.busy.Load()))
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
	if req.Code == "lost" {
		return sandbox.Result{}, fmt.Errorf("%w: gone", sandbox.ErrUnavailable)
	}
	return sandbox.Result{Status: sandbox.StatusOK, Stdout: req.Code}, nil
}

func TestBatchWaitsOutAnOverloadAndKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := &crowded{}
		exec.slots.Store(3)
		j := judge.New(exec, judge.Config{Concurrency: 10})
		var jobs []judge.Job
		for i := range 100 {
			switch {
			case i%10 == 3:
				jobs = append(jobs, judge.Output{ID: fmt.Sprint(i), Code: "lost"})
			case i%10 == 4:
				jobs = append(jobs, judge.Math{ID: fmt.Sprint(i), Answer: "1/2", Truth: "0.5"})
			case i%10 == 5:
				jobs = append(jobs, judge.Math{Answer: "1/2", Truth: "0.5"})
			default:
				jobs = append(jobs, judge.Output{ID: fmt.Sprint(i), Code: fmt.Sprint(i), Expected: fmt.Sprint(i - i%2)})
			}
		}
		for i, a := range j.Batch(t.Context(), jobs) {
			switch failed := a.Err != nil; {
			case i%10 == 3 || i%10 == 5:
				if !failed || a.Verdict != (judge.Verdict{}) {
					t.Errorf("job %d: %+v", i, a)
				}
			case failed || a.Verdict.Equal != (i%10 == 4 || i%2 == 0):
				t.Errorf("job %d: %+v", i, a)
			}
		}
		if exec.most.Load() != 3 {
			t.Errorf("%d jobs at once, want 3", exec.most.Load())
		}
		exec.slots.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		a := j.Batch(ctx, jobs[:1])[0]
		if a.Err == nil || time.Since(start) != time.Minute {
			t.Errorf("%+v after %v", a, time.Since(start))
		}
	})
}
