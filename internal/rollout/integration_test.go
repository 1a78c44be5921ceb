//go:build integration

package rollout_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/rl"
	"temper/internal/tool"
	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/pool"
)

// realSandbox starts a pool of one jailed interpreter for the test.
func realSandbox(t *testing.T) sandbox.Executor {
	t.Helper()
	j, err := jail.New(t.Context(), jail.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	p, err := pool.New(t.Context(), pool.Config{}, pool.FromJail(j))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestTeachersSpeakAsTheSandbox: each tool result that a teacher writes is what
// the real sandbox answers. The values of a chase dialogue come from a fixture
// made of the dialogue itself.
func TestTeachersSpeakAsTheSandbox(t *testing.T) {
	executor := realSandbox(t)
	for _, e := range []env.Environment{env.Chase{}, env.Verbs{}, env.Math{}} {
		for i := range 60 {
			d, err := e.Dialogue(1, i, 1+i%3)
			if err != nil {
				t.Fatal(err)
			}
			for at, m := range d.Messages {
				if m.Role != chat.RoleTool {
					continue
				}
				code := codeOf(t, d.Messages[at-1])
				res, err := executor.Execute(t.Context(), sandbox.Request{
					ID: fmt.Sprintf("%s-%d-%d", e.Name(), i, at), Code: code, Fixture: fixtureOf(t, d),
				})
				if err != nil {
					t.Fatal(err)
				}
				if got := tool.Outcome(res).Text(0); got != m.Content {
					t.Errorf("%s: sandbox says %q, the teacher %q", code, got, m.Content)
				}
			}
		}
	}
}

func codeOf(t *testing.T, m chat.Message) string {
	t.Helper()
	var args struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal([]byte(m.ToolCalls[0].Function.Arguments), &args); err != nil {
		t.Fatal(err)
	}
	return args.Code
}

// fixtureOf is a dict of what the dialogue's good lookups returned.
func fixtureOf(t *testing.T, d chat.Dialogue) string {
	t.Helper()
	fixture := "db = {}\n"
	for at, m := range d.Messages {
		var key int
		if m.Role != chat.RoleTool {
			continue
		}
		if n, _ := fmt.Sscanf(codeOf(t, d.Messages[at-1]), "print(db['k%d'])", &key); n == 1 {
			fixture += fmt.Sprintf("db['k%d'] = %q\n", key, m.Content)
		}
	}
	return fixture
}

// TestProblemsAreSolvableInTheSandbox by the programs a policy is to learn.
func TestProblemsAreSolvableInTheSandbox(t *testing.T) {
	executor := realSandbox(t)
	problems, err := env.Chase{}.Problems(1, env.HeldOut, 3, 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		code := "v = '" + p.Prompt[:4] + "'\nwhile isinstance(v, str):\n    v = db[v]\nv"
		res, err := executor.Execute(t.Context(), sandbox.Request{ID: p.ID, Code: code, Fixture: p.Fixture})
		if err != nil {
			t.Fatal(err)
		}
		if got := tool.Outcome(res).Text(0); !(env.Chase{}).Verify(p, got) {
			t.Errorf("%s: following the dict gives %q, the answer is %s", p.ID, got, p.Answer)
		}
	}
}

// TestRealVerifierJobs: a root as the formula gives it is right, the other root is
// wrong, whatever the machine's interpreter has to compare them with.
func TestRealVerifierJobs(t *testing.T) {
	f := newFormat(t)
	executor := realSandbox(t)
	problems, err := env.Math{}.Problems(1, env.HeldOut, 3, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		var which string
		var b, c int
		if _, err := fmt.Sscanf(p.Prompt, "%s root of x^2%dx%d?", &which, &b, &c); err != nil {
			t.Fatalf("%q: %v", p.Prompt, err)
		}
		sign, other := "+", "-"
		if which == "smaller" {
			sign, other = other, sign
		}
		for s, want := range map[string]float64{sign: 1, other: 0} {
			code := fmt.Sprintf("print((%d)**2-4*(%d))", b, c)
			root := fmt.Sprintf(`(%d%s\sqrt{%d})/2`, -b, s, b*b-4*c)
			sp := spec()
			sp.Problem, sp.MaxResponseTokens = p, 1000
			got := run(t, newRunner(t, f, says(f, call(code), answer(root)), executor), sp)
			if got.Reward != want || got.StopReason != rl.StopAnswered {
				t.Errorf("%s %s is rewarded with %v (%s %s), the answer is %s", p.Prompt, root, got.Reward, got.StopReason, got.Err, p.Answer)
			}
		}
	}
}

// TestRealFixtureThatRaises is a fault of the data set, not of the policy.
func TestRealFixtureThatRaises(t *testing.T) {
	f := newFormat(t)
	s := spec()
	s.Problem.Fixture = "db = {}['k1']"
	got := run(t, newRunner(t, f, says(f, call("print(1)"), answer("116")), realSandbox(t)), s)
	if want := "fault of the data set: problem chase1-1: fixture: KeyError: 'k1'"; got.StopReason != rl.StopInfraError || got.Err != want {
		t.Errorf("stop %s, error %q, want %q", got.StopReason, got.Err, want)
	}
}
