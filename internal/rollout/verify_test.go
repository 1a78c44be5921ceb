package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	answers "temper/internal/answer"
	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/sandbox"
	"temper/sandbox/sandboxtest"
)

func rootSpec() rollout.Spec {
	s := spec()
	s.Problem = rl.Problem{ID: "math3-1", Env: "math", Level: 3, Prompt: "root?", Answer: `3+\sqrt{2}`}
	return s
}

func answer(text string) string { return chat.TokenAnswer + text + chat.TokenAnswerEnd }

// TestFormulasAreCompared, and no program of the sandbox takes part in it.
func TestFormulasAreCompared(t *testing.T) {
	f := newFormat(t)
	for name, c := range map[string]struct {
		says   string
		want   float64
		tokens int
	}{
		"equal formula":       {answer(`(6+\sqrt{8})/2`), 1, 200},
		"other formula":       {answer(`(6-\sqrt{8})/2`), 0, 200},
		"same text":           {answer(`3+\sqrt{2}`), 1, 200},
		"same but for dress":  {answer(`\boxed{3 + \sqrt2}`), 1, 200},
		"words":               {answer(`no idea`), 0, 200},
		"no answer":           {"hm", 0, 200},
		"empty answer":        {answer(""), 0, 200},
		"hostile":             {answer(`9^{9^{9^{9}}}`), 0, 200},
		"cut after an answer": {answer(`(6+\sqrt{8})/2`) + strings.Repeat("x", 50), 0, 40},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) { return sandbox.Result{}, sandbox.ErrUnavailable }}
			s := rootSpec()
			s.MaxResponseTokens = c.tokens
			got := run(t, newRunner(t, f, says(f, c.says), fake), s)
			if got.Reward != c.want || got.StopReason == rl.StopInfraError || len(fake.Requests()) != 0 {
				t.Errorf("reward %v, stop %s, %d programs; want %v and none", got.Reward, got.StopReason, len(fake.Requests()), c.want)
			}
		})
	}
}

// TestBadKeyIsNoReward: an answer that nobody could judge is neither right nor wrong.
func TestBadKeyIsNoReward(t *testing.T) {
	f := newFormat(t)
	s := rootSpec()
	s.Problem.Answer = "$$"
	got := run(t, newRunner(t, f, says(f, answer(`\sqrt{8}`)), &sandboxtest.Fake{}), s)
	if want := "fault of the data set: the answer of problem math3-1"; got.StopReason != rl.StopInfraError || !strings.Contains(got.Err, want) {
		t.Errorf("stop %s, error %q, want %q", got.StopReason, got.Err, want)
	}
}

// TestVerificationDoesNotHoldUpSampling: with one slot and no reward until all
// trajectories are sampled, all are sampled.
func TestVerificationDoesNotHoldUpSampling(t *testing.T) {
	f, own := newFormat(t), rewardFile(t)
	const n = 6
	synctest.Test(t, func(t *testing.T) {
		sampled := make(chan struct{}, n)
		engine := &inferencetest.Script{Reply: func(inference.Request) []int32 {
			sampled <- struct{}{}
			return append(f.Tokenizer().EncodeSpecial(answer(`(6+\sqrt{8})/2`)), f.Stop()[0])
		}}
		cfg := config()
		cfg.MaxConcurrent = 1
		cfg.Reward = &rollout.Reward{File: own}
		fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
			for len(sampled) < n || len(engine.Released()) < n {
				time.Sleep(time.Millisecond)
			}
			return sandbox.Result{Status: sandbox.StatusOK, Stdout: `{"reward": 1}`}, nil
		}}
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

// TestCheckNeverDisagreesWithTheComparison that it saves.
func TestCheckNeverDisagreesWithTheComparison(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) string {
		a, b := rapid.IntRange(-40, 40).Draw(t, "a"), rapid.IntRange(0, 12).Draw(t, "b")
		form := rapid.SampledFrom([]string{"%d", "%[1]d/%[2]d", "%[1]d.%[2]d", "%03d", "%+d", " %d ", `\sqrt{%d}`, "%[1]d^%[2]d"}).Draw(t, "form")
		if strings.Contains(form, "[2]") {
			return fmt.Sprintf(form, a, b)
		}
		return fmt.Sprintf(form, a)
	})
	decided := 0
	rapid.Check(t, func(t *rapid.T) {
		says, truth := number.Draw(t, "answer"), number.Draw(t, "truth")
		check := env.Math{}.Check(rl.Problem{Answer: truth}, says)
		if check == env.Open {
			return
		}
		decided++
		v, err := answers.Equal(says, truth)
		if err != nil || v.Equal != (check == env.Right) {
			t.Fatalf("%q and %q: %s, the comparison says %+v, %v", says, truth, check, v, err)
		}
	})
	if decided == 0 {
		t.Error("nothing was decided without it")
	}
}
