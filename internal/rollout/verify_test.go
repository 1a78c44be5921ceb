package rollout_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/policy"
	"temper/internal/policy/policytest"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/sandbox"
	"temper/sandbox/judge"
	"temper/sandbox/sandboxtest"
)

func rootSpec() rollout.Spec {
	s := spec()
	s.Problem = rl.Problem{ID: "math3-1", Env: "math", Level: 3, Prompt: "root?", Answer: `3+\sqrt{2}`}
	return s
}

// verdict answers verifier jobs with the sign and other programs with 8.
func verdict(sign string) *sandboxtest.Fake {
	return &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
		if strings.Contains(req.ID, "/verify/") {
			return sandbox.Result{Status: sandbox.StatusOK, Stdout: "sympy " + sign + "\n"}, nil
		}
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: "8\n"}, nil
	}}
}

func answer(text string) string { return chat.TokenAnswer + text + chat.TokenAnswerEnd }

// TestVerifierJobDecides what arithmetic cannot, and nothing else costs a job.
func TestVerifierJobDecides(t *testing.T) {
	f := newFormat(t)
	for name, c := range map[string]struct {
		says   string
		sign   string
		want   float64
		jobs   int
		tokens int
	}{
		"equal formula":       {answer(`(6+\sqrt{8})/2`), "1", 1, 1, 200},
		"other formula":       {answer(`(6-\sqrt{8})/2`), "0", 0, 1, 200},
		"undecided":           {answer(`(6-\sqrt{8})/2`), "?", 0, 1, 200},
		"same text":           {answer(`3+\sqrt{2}`), "0", 1, 0, 200},
		"same but for dress":  {answer(`\boxed{3 + \sqrt2}`), "0", 1, 0, 200},
		"words":               {answer(`no idea`), "1", 0, 0, 200},
		"no answer":           {"hm", "1", 0, 0, 200},
		"empty answer":        {answer(""), "1", 0, 0, 200},
		"cut after an answer": {answer(`(6+\sqrt{8})/2`) + strings.Repeat("x", 50), "1", 0, 0, 40},
	} {
		t.Run(name, func(t *testing.T) {
			fake := verdict(c.sign)
			s := rootSpec()
			s.MaxResponseTokens = c.tokens
			got := run(t, newRunner(t, f, says(f, c.says), fake), s)
			if got.Reward != c.want || got.StopReason == rl.StopInfraError || len(fake.Requests()) != c.jobs {
				t.Errorf("reward %v, stop %s, %d jobs; want %v and %d jobs", got.Reward, got.StopReason, len(fake.Requests()), c.want, c.jobs)
			}
		})
	}
}

// TestKeysOfFairness: calls of a run share as one, its verifier jobs as another;
// and a trajectory that is run again asks under the same names.
func TestKeysOfFairness(t *testing.T) {
	f := newFormat(t)
	fake := verdict("1")
	for range 2 {
		if got := run(t, newRunner(t, f, says(f, call("print(36-28)"), answer(`(6+\sqrt{8})/2`)), fake), rootSpec()); got.Reward != 1 {
			t.Fatalf("%+v", got)
		}
	}
	got := fake.Requests()
	if len(got) != 4 || got[0].Run != "run" || got[1].Run != "run/verify" {
		t.Fatalf("requests %+v", got)
	}
	if got[0].ID != got[2].ID || got[1].ID != got[3].ID || !strings.HasPrefix(got[1].ID, "run/train/1/2/math3-1/0/verify/") {
		t.Errorf("ids %q %q %q %q", got[0].ID, got[1].ID, got[2].ID, got[3].ID)
	}
	other := rootSpec()
	run(t, newRunner(t, f, says(f, answer(`\sqrt{8}`)), fake), other)
	if id := fake.Requests()[4].ID; id == got[1].ID {
		t.Errorf("two answers share the name %s", id)
	}
}

// TestVerifierFailureIsNoReward: an answer that nobody could judge is neither
// right nor wrong.
func TestVerifierFailureIsNoReward(t *testing.T) {
	f := newFormat(t)
	for name, c := range map[string]struct {
		res      sandbox.Result
		err      error
		truth    string
		attempts int
		names    int
		want     string
	}{
		"unavailable": {err: sandbox.ErrUnavailable, attempts: 3, names: 1, want: "gave up after 3 attempts"},
		"internal":    {res: sandbox.Result{Status: sandbox.StatusInternal, Reason: "fork failed"}, attempts: 3, names: 1, want: "fork failed"},
		"starved":     {res: sandbox.Result{Status: sandbox.StatusTimeLimit, Reason: "wall time limit"}, attempts: 3, names: 3, want: "kept from running"},
		"bad key":     {truth: "$$", want: "fault of the data set: the answer of problem math3-1"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) { return c.res, c.err }}
			s := rootSpec()
			if c.truth != "" {
				s.Problem.Answer = c.truth
			}
			got := run(t, newRunner(t, f, says(f, answer(`\sqrt{8}`)), fake), s)
			if got.StopReason != rl.StopInfraError || !strings.Contains(got.Err, c.want) {
				t.Errorf("stop %s, error %q", got.StopReason, got.Err)
			}
			var ids []string
			for _, req := range fake.Requests() {
				ids = append(ids, req.ID)
			}
			slices.Sort(ids)
			if names := len(slices.Compact(slices.Clone(ids))); len(ids) != c.attempts || names != c.names {
				t.Errorf("%d attempts under %d names, want %d and %d", len(ids), names, c.attempts, c.names)
			}
		})
	}
}

// TestVerdictOfAnotherAttemptCounts, whichever failure came before.
func TestVerdictOfAnotherAttemptCounts(t *testing.T) {
	f := newFormat(t)
	attempts := 0
	fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		switch attempts++; attempts {
		case 1:
			return sandbox.Result{}, sandbox.ErrUnavailable
		case 2:
			return sandbox.Result{Status: sandbox.StatusTimeLimit, Reason: "wall time limit"}, nil
		default:
			return sandbox.Result{Status: sandbox.StatusOK, Stdout: "fractions 1\n"}, nil
		}
	}}
	if got := run(t, newRunner(t, f, says(f, answer(`\sqrt{8}`)), fake), rootSpec()); got.Reward != 1 || attempts != 3 {
		t.Errorf("reward %v after %d attempts: %s", got.Reward, attempts, got.Err)
	}
}

// TestVerificationDoesNotHoldUpSampling: with one slot and no verdict until all
// trajectories are sampled, all are sampled.
func TestVerificationDoesNotHoldUpSampling(t *testing.T) {
	f := newFormat(t)
	const n = 6
	synctest.Test(t, func(t *testing.T) {
		sampled := make(chan struct{}, n)
		engine := &policytest.Script{Reply: func(policy.Request) []int32 {
			sampled <- struct{}{}
			return append(f.Tokenizer().EncodeSpecial(answer(`(6+\sqrt{8})/2`)), f.Stop()[0])
		}}
		cfg := config()
		cfg.MaxConcurrent = 1
		fake := verdict("1")
		ask := fake.Func
		fake.Func = func(req sandbox.Request) (sandbox.Result, error) {
			for len(sampled) < n || len(engine.Released()) < n {
				time.Sleep(time.Millisecond)
			}
			return ask(req)
		}
		r, err := rollout.New(cfg.Config, cfg.deps(f, engine, fake))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan rl.Group, 1)
		go func() {
			g, err := r.Group(t.Context(), rootSpec(), n)
			if err != nil {
				t.Error(err)
			}
			done <- g
		}()
		select {
		case g := <-done:
			for _, tr := range g.Trajectories {
				if tr.Reward != 1 {
					t.Errorf("reward %v: %s", tr.Reward, tr.Err)
				}
			}
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d trajectories sampled while the first answer waits for its verdict", len(sampled), n)
		}
	})
}

// TestFailingFixtureIsNotThePolicysError, and costs one attempt; a refusal of the
// policy's own request stays its own.
func TestFailingFixtureIsNotThePolicysError(t *testing.T) {
	f := newFormat(t)
	for reason, want := range map[string]rl.StopReason{
		"fixture: ZeroDivisionError: division by zero":      rl.StopInfraError,
		"fixture of 9000000 bytes is above the limit of 10": rl.StopInfraError,
		"code of 9000000 bytes is above the limit of 10":    rl.StopAnswered,
	} {
		fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
			return sandbox.Result{Status: sandbox.StatusRefused, Reason: reason}, nil
		}}
		got := run(t, newRunner(t, f, says(f, call("x"), answer("116")), fake), spec())
		if got.StopReason != want || len(fake.Requests()) != 1 {
			t.Errorf("%s: stop %s after %d calls, want %s", reason, got.StopReason, len(fake.Requests()), want)
		}
		if named := "fault of the data set: problem chase1-1: " + reason; want == rl.StopInfraError && got.Err != named {
			t.Errorf("error %q, want %q", got.Err, named)
		}
	}
}

// TestCheckNeverDisagreesWithTheJob that it saves.
func TestCheckNeverDisagreesWithTheJob(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) string {
		a, b := rapid.IntRange(-40, 40).Draw(t, "a"), rapid.IntRange(0, 12).Draw(t, "b")
		form := rapid.SampledFrom([]string{"%d", "%[1]d/%[2]d", "%[1]d.%[2]d", "%03d", "%+d", " %d ", `\sqrt{%d}`, "%[1]d^%[2]d"}).Draw(t, "form")
		if strings.Contains(form, "[2]") {
			return fmt.Sprintf(form, a, b)
		}
		return fmt.Sprintf(form, a)
	})
	j := judge.New(&sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{}, errors.New("a job for what arithmetic decides")
	}}, judge.Config{})
	decided := 0
	rapid.Check(t, func(t *rapid.T) {
		says, truth := number.Draw(t, "answer"), number.Draw(t, "truth")
		check := env.Math{}.Check(rl.Problem{Answer: truth}, says)
		if check == env.Open {
			return
		}
		decided++
		v, err := j.Do(t.Context(), judge.Math{ID: "x", Answer: says, Truth: truth})
		if err != nil || v.Equal != (check == env.Right) {
			t.Fatalf("%q and %q: %s, the job says %+v, %v", says, truth, check, v, err)
		}
	})
	if decided == 0 {
		t.Error("nothing was decided without a job")
	}
}
