package rollout_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/internal/inference/inferencetest"
	"temper/internal/rl"
	"temper/internal/rollout"
)

// inParts runs a trajectory that is cut after each so many response tokens. The versions of
// its parts are 0, 1 and so on.
func inParts(t *testing.T, r *rollout.Runner, engine *inferencetest.Script, s rollout.Spec, every int) (rl.Trajectory, int) {
	t.Helper()
	part := &rollout.Part{}
	for n := 0; ; n++ {
		part.Until = (n + 1) * every
		engine.Serving, s.Version, s.Part = int64(n), int64(n), part
		got, err := r.Rollout(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if got.StopReason != rl.StopCut {
			return got, n + 1
		}
		if got.Reward != 0 || got.ResponseTokens() < part.Until {
			t.Fatalf("cut after %d tokens of %d, with reward %v", got.ResponseTokens(), part.Until, got.Reward)
		}
		part.Before = &got
	}
}

// TestPartsMakeTheWholeTrajectory wherever it is cut: in the middle of a turn, at its end,
// in the results of a tool, in a session that is made again. Each token is of the version
// of its part.
func TestPartsMakeTheWholeTrajectory(t *testing.T) {
	f := newFormat(t)
	texts := []string{call("a") + call("show"), "some words", call("exit") + call("b"), call("fail") + call("show"), answer("1") + answer("116")}
	texts = slices.Delete(texts, 1, 2) // a turn without a call is the last
	header := f.Tokenizer().EncodeSpecial("assistant\n")
	runner := func() (*rollout.Runner, *inferencetest.Script) {
		engine := says(f, texts...)
		engine.Reply = inferencetest.Resumed(engine.Reply, header[len(header)-1])
		return newSessionRunner(t, inSession(), f, engine, newNotebook(t)), engine
	}
	r, _ := runner()
	s := longSpec()
	s.MaxResponseTokens = 1000
	want := run(t, r, s)
	if want.StopReason != rl.StopAnswered || want.Reward != 1 || len(want.Turns) != 4 || want.AnswerTags != 2 {
		t.Fatalf("the whole trajectory: %+v", want)
	}
	most := 0
	for every := 1; every < want.ResponseTokens()+2; every += 1 + every/8 {
		r, engine := runner()
		got, parts := inParts(t, r, engine, s, every)
		most = max(most, parts)
		ignored := cmp.Options{clocks(), cmpopts.IgnoreFields(rl.Trajectory{}, "Spans", "PolicyVersion")}
		if diff := cmp.Diff(got, want, ignored); diff != "" {
			t.Fatalf("cut every %d tokens: got -, want +\n%s", every, diff)
		}
		if err := got.Validate(); err != nil || len(got.Spans) == 0 != (parts == 1) {
			t.Fatalf("cut every %d tokens: %v, spans %v of %d parts", every, err, got.Spans, parts)
		}
		for i, sampled := range got.LossMask {
			if sampled && got.VersionAt(i) != int64((i-got.PromptTokens)/every) {
				t.Fatalf("cut every %d tokens: response token %d is of version %d", every, i-got.PromptTokens, got.VersionAt(i))
			}
		}
	}
	if most < 50 {
		t.Errorf("at most %d parts", most)
	}
}

// TestPartOfAnotherTrajectory is refused.
func TestPartOfAnotherTrajectory(t *testing.T) {
	f := newFormat(t)
	r := newRunner(t, f, says(f, call("a"), answer("116")), prints("1"))
	s := spec()
	s.Part = &rollout.Part{Until: 3}
	cut := run(t, r, s)
	if cut.StopReason != rl.StopCut {
		t.Fatalf("stopped by %s", cut.StopReason)
	}
	for name, change := range map[string]func(*rl.Trajectory, *rollout.Spec){
		"ended":          func(t *rl.Trajectory, _ *rollout.Spec) { t.StopReason = rl.StopAnswered },
		"another seed":   func(_ *rl.Trajectory, s *rollout.Spec) { s.Rollout++ },
		"another prompt": func(_ *rl.Trajectory, s *rollout.Spec) { s.Problem.Prompt += "x" },
		"cut short":      func(t *rl.Trajectory, _ *rollout.Spec) { t.Tokens = t.Tokens[:2] },
	} {
		before, next := cut, s
		change(&before, &next)
		next.Part = &rollout.Part{Before: &before}
		if got, err := r.Rollout(context.Background(), next); err == nil {
			t.Errorf("%s: it goes on and is %+v", name, got)
		}
	}
}
