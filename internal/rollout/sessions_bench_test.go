//go:build integration

package rollout_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"temper/internal/chat"
	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
	"temper/internal/rl"
	"temper/sandbox"
)

// benchCalls is the number of calls of a trajectory.
const benchCalls = 8

// benchPrograms are what a policy needs first and what each call does with it.
// Without a session each program has to begin with the first part.
var benchPrograms = []struct{ name, first, step string }{
	{"trivial", "", "print(%d + 1)"},
	{"numpy", "import numpy as np\na = np.arange(10000.0).reshape(100, 100)", "print((a @ a).sum() + %d)"},
	{"sympy", "import sympy as sp\nx = sp.symbols('x')\np = sp.expand((x + 1)**20)", "print(sp.factor(p + %d))"},
	{"state", "primes = [n for n in range(2, 12000) if all(n %% d for d in range(2, int(n**.5) + 1))]", "print(primes[%d])"},
}

// BenchmarkSessions runs trajectories of 8 calls, with a session and without, on a
// node of their own each. node-ms/call is the processor time of the node with all
// that it started, less that of a node without calls; wall-ms/call is the time that
// a trajectory waits for a call.
func BenchmarkSessions(b *testing.B) {
	f := newFormat(b)
	for _, p := range benchPrograms {
		for _, session := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/session=%t", p.name, session), func(b *testing.B) {
				n, client := startNode(b)
				warm := sandbox.Request{ID: "warm", Code: "print('warm')", Profile: sandbox.ProfileNumeric}
				if res, err := client.Execute(b.Context(), warm); err != nil || res.Status != sandbox.StatusOK {
					b.Fatalf("%+v, %v", res, err)
				}
				cfg := patient()
				cfg.MaxConcurrent = 1
				if !session {
					cfg.SessionTools = nil
				}
				var inside, waited time.Duration
				calls := 0
				for round := 0; b.Loop(); round++ {
					g := sampleOn(b, cfg, f, stepEngine(f, p.first, p.step, session, round), client, 4)
					for _, tr := range g.Trajectories {
						inside += check(b, tr)
						waited += tr.ToolTime
						calls += benchCalls
					}
				}
				spent := n.end(syscall.SIGTERM) - idleNode(b)
				b.ReportMetric(float64(spent.Microseconds())/1e3/float64(calls), "node-ms/call")
				b.ReportMetric(float64(waited.Microseconds())/1e3/float64(calls), "wall-ms/call")
				b.ReportMetric(float64(inside.Microseconds())/1e3/float64(calls), "program-wall-ms/call")
			})
		}
	}
}

// check fails unless every call of the trajectory printed something, and returns the
// time that its programs ran.
func check(b *testing.B, tr rl.Trajectory) (inside time.Duration) {
	b.Helper()
	calls := 0
	for _, turn := range tr.Turns {
		for _, c := range turn.Calls {
			if c.Status.Failed() {
				b.Fatalf("%q: %s", c.Arguments, c.Response)
			}
			inside += c.Spent.Wall
			calls++
		}
	}
	if calls != benchCalls {
		b.Fatalf("%d calls, want %d", calls, benchCalls)
	}
	return inside
}

// idleNode is the processor time of a node that is only made warm.
func idleNode(b *testing.B) time.Duration {
	b.Helper()
	n, client := startNode(b)
	if _, err := client.Execute(b.Context(), sandbox.Request{ID: "warm", Code: "1", Profile: sandbox.ProfileNumeric}); err != nil {
		b.Fatal(err)
	}
	return n.end(syscall.SIGTERM)
}

// stepEngine writes one call a turn, which differs from all others.
func stepEngine(f *chat.Format, first, step string, session bool, round int) *inferencetest.Script {
	return &inferencetest.Script{Reply: func(req inference.Request) []int32 {
		at := turnOf(f, req)
		// A node answers a program that it has run lately without running it.
		code := fmt.Sprintf(step+"  # round %d", at, round)
		if first != "" && (at == 0 || !session) {
			code = strings.ReplaceAll(first, "%%", "%") + "\n" + code
		}
		text := answer("1")
		if at < benchCalls {
			text = call(code)
		}
		return append(f.Tokenizer().EncodeSpecial(text), f.Stop()[0])
	}}
}
