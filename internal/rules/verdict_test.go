package rules_test

import (
	"strings"
	"testing"

	"temper/internal/config"
	"temper/internal/rules"
)

// trail has a step for each reward, with healthy other figures.
func trail(rewards ...float64) []rules.Figures {
	var out []rules.Figures
	for i, r := range rewards {
		out = append(out, rules.Figures{Step: i + 11, Reward: r, ClipRatio: 0.1, Tokens: 100, ToolErrors: 0.1, Entropy: 0.5, Updates: 1})
	}
	return out
}

func scores(values ...float64) []rules.Score {
	var out []rules.Score
	for i, v := range values {
		out = append(out, rules.Score{Step: 2 * i, Accuracy: v})
	}
	return out
}

// TestPlateau: every condition that is stated must hold, and the bound says which did not.
func TestPlateau(t *testing.T) {
	flat := trail(0.1, 0.5, 0.5, 0.51)
	until := config.Until{Steps: 4, Plateau: config.Plateau{Window: 2, MinGain: 0.01, ClipMin: 0.05, ClipMax: 0.15, Eval: "aime", Evals: 1}}
	for name, c := range map[string]struct {
		change func(*rules.Case)
		kind   rules.Kind
		says   string
	}{
		"gains":            {func(*rules.Case) {}, rules.Bound, "a gain of 0.2050"},
		"stands still":     {func(c *rules.Case) { c.Trail = trail(0.5, 0.51, 0.505, 0.51) }, rules.Plateau, "a gain of 0.0025 (at most 0.01)"},
		"clips too much":   {func(c *rules.Case) { c.Trail = trail(0.5, 0.51, 0.505, 0.51); c.Trail[3].ClipRatio = 0.9 }, rules.Bound, "clip ratio 0.5000 (0.05 to 0.15)"},
		"eval gains":       {func(c *rules.Case) { c.Trail = trail(0.5, 0.5, 0.5, 0.5); c.Scores = scores(0.1, 0.2) }, rules.Bound, "0.2000 after step 2, before them 0.1000 after step 0"},
		"few evaluations":  {func(c *rules.Case) { c.Trail = trail(0.5, 0.5, 0.5, 0.5); c.Scores = scores(0.1) }, rules.Bound, "1 evaluations of aime are too few"},
		"few steps":        {func(c *rules.Case) { c.Trail = trail(0.5, 0.5, 0.5) }, rules.Bound, "3 steps are fewer than two windows"},
		"not yet the end":  {func(c *rules.Case) { c.Last = false }, rules.GoOn, ""},
		"no plateau asked": {func(c *rules.Case) { c.Until.Plateau = config.Plateau{} }, rules.GoOn, ""},
	} {
		given := rules.Case{Until: until, Trail: flat, Scores: scores(0.2, 0.2, 0.19), Last: true}
		c.change(&given)
		got := rules.JudgeStage(given)
		if got.Kind != c.kind || got.End != (c.kind != rules.GoOn) || !strings.Contains(got.Reason, c.says) {
			t.Errorf("%s: %s, %q, end %v; want %s saying %q", name, got.Kind, got.Reason, got.End, c.kind, c.says)
		}
	}
}

// TestCollapse needs as many signs as are asked for, and is told once.
func TestCollapse(t *testing.T) {
	collapse := config.Collapse{Window: 2, RewardDrop: 0.5, EntropyDrop: 0.8, LengthGrowth: 2, ToolErrors: 0.3, Signs: 2}
	fallen := trail(0.1, 0.8, 0.9, 0.3, 0.2, 0.1)
	got := rules.JudgeStage(rules.Case{Collapse: collapse, Trail: fallen})
	if got.Kind != rules.GoOn {
		t.Errorf("one sign of two: %+v", got)
	}
	fallen[4].Tokens, fallen[5].Tokens = 300, 300
	got = rules.JudgeStage(rules.Case{Collapse: collapse, Trail: fallen})
	if got.Kind != rules.Collapse || !got.Pause || got.End || got.CollapsedSince != 16 ||
		got.Reason != "mean reward 0.15, was 0.85; response tokens 300, was 100 (steps 15 to 16 against the best window, steps 12 to 13)" {
		t.Errorf("two signs: %+v", got)
	}
	if again := rules.JudgeStage(rules.Case{Collapse: collapse, Trail: fallen, CollapsedSince: 15}); again.Kind != rules.GoOn || again.CollapsedSince != 15 {
		t.Errorf("a collapse that stands was told again: %+v", again)
	}
	collapse.Then = config.CollapseEnd
	if got = rules.JudgeStage(rules.Case{Collapse: collapse, Trail: fallen}); !got.End || got.Pause {
		t.Errorf("end_stage: %+v", got)
	}
	fallen[4].Updates, fallen[5].Updates, fallen[4].Entropy, fallen[5].Entropy, fallen[4].Tokens, fallen[5].Tokens = 0, 0, 0, 0, 100, 100
	if got = rules.JudgeStage(rules.Case{Collapse: collapse, Trail: fallen}); got.Kind != rules.GoOn {
		t.Errorf("the entropy of steps without an update counts: %+v", got)
	}
}
