package reward_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/reward"
	"temper/internal/rl"
)

// TestRewardFile: the function gets what it asks for by name, and nothing else.
func TestRewardFile(t *testing.T) {
	f, problems := reward.NewFile("my.py", []byte("def _x(): pass\ndef judge(key, answer, eps=1): return 1\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	in, err := f.Input(rl.Problem{ID: "p", Answer: "7", Fixture: "secret"}, &rl.Trajectory{Text: "t", Answer: "</answer>"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"arguments":{"answer":"\u003c/answer\u003e","key":"7"},"name":"judge"}`, in); diff != "" || f.Line != 2 {
		t.Errorf("line %d, input -want +got\n%s", f.Line, diff)
	}
}

func TestFaultsOfRewardFiles(t *testing.T) {
	for source, want := range map[string]string{
		"":                                    "has no function reward",
		"def a(key): pass\ndef b(key): pass":  "has no function reward",
		"def reward(): 1\ndef reward(): 2":    "line 2: defines reward a second time, after line 1",
		"def reward(problem, *rest): pass":    "line 1: reward: parameter rest cannot be given by name",
		"def reward(problem, gold): pass":     "line 1: reward: parameter gold is unknown: want some of problem, trajectory, key",
		"async def reward(problem): pass":     "line 1: reward: is async",
		"x = 'abc\ndef reward(problem): pass": "line 1: has a string that is not closed",
		"#" + strings.Repeat("x", 1<<20):      "above the limit of 65536",
	} {
		_, problems := reward.NewFile("my.py", []byte(source))
		if len(problems) != 1 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%.40q: %v, want %q", source, problems, want)
		}
	}
}
