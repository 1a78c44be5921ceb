package rollout_test

import (
	"errors"
	"strings"
	"testing"

	"temper/internal/fault"
	"temper/internal/reward"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/sandbox"
	"temper/sandbox/sandboxtest"
)

func rewardFile(t *testing.T) reward.File {
	t.Helper()
	f, problems := reward.NewFile("my.py", []byte("import re\ndef reward(trajectory, key, stop_reason):\n    return 1\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return f
}

// judged makes a trajectory whose reward function ends with res.
func judged(t *testing.T, own rollout.Reward, text string, res sandbox.Result, failure error) (rl.Trajectory, *sandboxtest.Fake, error) {
	t.Helper()
	f := newFormat(t)
	fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) { return res, failure }}
	cfg := config()
	own.File = rewardFile(t)
	cfg.Reward = &own
	got, err := newRunnerWith(t, cfg, f, says(f, text), fake).Rollout(t.Context(), spec())
	return got, fake, err
}

// TestRewardFunctionJudgesWhatStopped in any way, by data alone, under the run's key of
// fairness for verifier jobs.
func TestRewardFunctionJudgesWhatStopped(t *testing.T) {
	ok := sandbox.Result{Status: sandbox.StatusOK, Stdout: `{"reward": -0.5, "details": {"a": 1}}`}
	got, fake, err := judged(t, rollout.Reward{Limits: sandbox.Limits{Wall: 7}}, "no answer", ok, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Reward != -0.5 || got.Details != `{"a": 1}` || got.StopReason != rl.StopAnswered {
		t.Errorf("%+v", got)
	}
	req := fake.Requests()[0]
	if req.Run != "run/verify" || req.Limits.Wall != 7 || !strings.Contains(req.ID, "/reward/") || strings.Contains(req.Code, "no answer") ||
		!strings.Contains(req.Stdin, `"key":"116"`) || !strings.Contains(req.Stdin, `"stop_reason":"answered"`) || strings.Contains(req.Fixture, "db") {
		t.Errorf("request %+v", req)
	}
}

// TestFailuresOfARewardFunction: the run ends with file and line, or leaves the trajectory
// out. An outage is neither.
func TestFailuresOfARewardFunction(t *testing.T) {
	raised := sandbox.Result{Status: sandbox.StatusError, Error: &sandbox.PythonError{Type: "KeyError", Message: "'a\nb'", Line: 3}}
	const want = "my.py:3: reward KeyError: 'a b'"
	_, _, err := judged(t, rollout.Reward{}, "x", raised, nil)
	if fault.Of(err) != fault.UserCode || !strings.Contains(err.Error(), "reward.path: "+want+", for run/train/1/2/chase1-1/0") {
		t.Errorf("stop: %v of kind %q", err, fault.Of(err))
	}
	got, fake, err := judged(t, rollout.Reward{Exclude: true}, "x", raised, nil)
	if err != nil || got.StopReason != rl.StopRewardError || got.Err != want || !got.Excluded() {
		t.Errorf("exclude: %+v, %v", got, err)
	}
	if n := len(fake.Requests()); n != 1 {
		t.Errorf("a failure was tried %d times", n)
	}
	got, _, err = judged(t, rollout.Reward{Exclude: true}, "x", sandbox.Result{}, errors.Join(sandbox.ErrUnavailable))
	if err != nil || got.StopReason != rl.StopInfraError || !strings.Contains(got.Err, "gave up after 3 attempts") {
		t.Errorf("outage: %+v, %v", got, err)
	}
}
