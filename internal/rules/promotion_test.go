package rules_test

import (
	"math"
	"strings"
	"testing"

	"temper/internal/rules"
)

func gateScores(a, b float64) []rules.GateScore {
	return []rules.GateScore{
		{Stage: "hops-1", Problems: 30, Metrics: map[string]float64{rules.Accuracy: a}},
		{Stage: "hops-2", Problems: 10, Metrics: map[string]float64{rules.Accuracy: b}},
	}
}

func TestRules(t *testing.T) {
	good := gateScores(0.6, 0.4) // 0.55 over all problems
	for _, c := range []struct {
		rule            string
		candidate, good []rules.GateScore
		passed          bool
		text            string
	}{
		{"accuracy>=+0", good, good, true, "accuracy 0.55, want at least 0.55 (last good 0.55)"},
		{"accuracy>=+0.01", good, good, false, "want at least 0.56"},
		{"accuracy>=-0.05", gateScores(0.54, 0.4), good, true, "accuracy 0.505, want at least 0.5"},
		{"accuracy>=-0.05", gateScores(0.5, 0.4), good, false, "accuracy 0.475"},
		{"hops-2/accuracy >= +0.1", gateScores(0, 0.5), good, true, "accuracy 0.5, want at least 0.5"},
		{"accuracy<=0.5", good, good, false, "want at most 0.5"},
		{"accuracy>=0.9", good, nil, false, "want at least 0.9"},
		{"accuracy>=+0.9", good, nil, true, "no good policy to compare with"},
		{"tool_error_rate<=+0", good, good, false, "tool_error_rate of the candidate is unknown"},
		{"accuracy>=-1", gateScores(math.NaN(), 1), good, false, "accuracy of the candidate is unknown"},
		{"accuracy>=-1", good, gateScores(math.Inf(1), 1), false, "accuracy of the last good policy is unknown"},
		{"accuracy>=-1", nil, good, false, "unknown"},
	} {
		gate, err := rules.ParseGates([]string{c.rule}, []string{"hops-1", "hops-2"})
		if err != nil {
			t.Fatal(err)
		}
		verdicts, passed := rules.Promote(gate, c.candidate, c.good)
		if passed != c.passed || len(verdicts) != 1 || !strings.Contains(verdicts[0].Text, c.text) {
			t.Errorf("%s: passed %v, %+v; want %v and %q", c.rule, passed, verdicts, c.passed, c.text)
		}
	}
}

// TestOneRuleThatFailsIsEnough, and each gets its verdict.
func TestOneRuleThatFailsIsEnough(t *testing.T) {
	gate, err := rules.ParseGates([]string{"accuracy>=0.9", "accuracy<=1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	verdicts, passed := rules.Promote(gate, gateScores(0.5, 0.5), nil)
	if passed || len(verdicts) != 2 || verdicts[0].Passed || !verdicts[1].Passed {
		t.Errorf("passed %v, verdicts %+v", passed, verdicts)
	}
}

func TestRulesThatCannotBeRead(t *testing.T) {
	_, err := rules.ParseGates([]string{"accuracy", "reward>=1", "maze/accuracy>=1", "accuracy>1", "accuracy>=NaN", "accuracy>=+0"}, []string{"a", "b"})
	for _, want := range []string{`"accuracy": want`, `unknown metric "reward"`, `no stage "maze", want one of a, b`, `"accuracy>1": want`, `"accuracy>=NaN": want`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error\n%v\nlacks %s", err, want)
		}
	}
	if n := strings.Count(err.Error(), "\n"); n != 4 {
		t.Errorf("%d line breaks, want one line for each of 5 mistakes", n)
	}
}

func TestRulesAreWrittenAsRead(t *testing.T) {
	for _, text := range []string{"accuracy>=+0", "accuracy>=-0.02", "tool_error_rate<=0.1", "hops-2/mean_tokens<=+1e+06"} {
		r, err := rules.ParseGate(text)
		if err != nil || r.String() != text {
			t.Errorf("%s comes back as %s (%v)", text, r, err)
		}
	}
}
