package config_test

import (
	"strings"
	"testing"

	"temper/internal/config"
)

// TestStageKeysThatAreRefused names every key that does not fit another one.
func TestStageKeysThatAreRefused(t *testing.T) {
	const head = "eval: {sets: [{name: probe, path: p.jsonl, max_response_tokens: 64}]}\n"
	for name, c := range map[string]struct{ yaml, want string }{
		"window too long":        {"stages: [{name: a, until: {steps: 10, plateau: {window: 6}}}]", "stages[0].until.plateau.window: is 6, but two windows do not fit into stages[0].until.steps (10)"},
		"plateau without window": {"stages: [{name: a, until: {steps: 10, plateau: {min_gain: 0.1}}}]", "stages[0].until.plateau.window: is 0 beside other keys"},
		"unknown set":            {"stages: [{name: a, until: {steps: 10, plateau: {window: 2, eval: aime}}}]", `stages[0].until.plateau.eval: "aime" is no set of eval.sets`},
		"set between stages":     {"stages: [{name: a, until: {steps: 10, plateau: {window: 2, eval: probe}}}]", "needs eval.sets[0].every_steps"},
		"band upside down":       {"stages: [{name: a, until: {steps: 10, plateau: {window: 2, clip_min: 0.3, clip_max: 0.2}}}]", "stages[0].until.plateau.clip_max: is 0.2, below"},
		"two sources of rates":   {"stages: [{name: a, filter: {rollouts: 8, rates: r.jsonl}}]", "stages[0].filter.rates: goes in place of stages[0].filter.rollouts"},
		"rates of nothing":       {"stages: [{name: a, filter: {min_pass_rate: 0.1}}]", "stages[0].filter.rollouts: is 0 and there are no rates"},
		"bands without an end":   {"stages: [{name: a, bands: {rest: 2}}]", "stages[0].bands.max_pass_rate: is 0 beside other keys"},
		"group of a stage":       {"stages: [{name: a, rollouts_per_problem: 4}]", "stages[0].group_size: is 8 with 4 rollouts of each problem"},
		"refill ahead":           {"rl: {window: 1, refill: {rounds: 1}, loss: {correction: {level: token, cap: 2}}}\nstages: [{name: a}]", "rl.refill.rounds: does not go with rl.window"},
		"soft without a buffer":  {"rl: {loss: {overlong: soft}}\nstages: [{name: a}]", `rl.loss.overlong_buffer: is 0 with overlong "soft"`},
		"gate upside down":       {"sft: {gate: {min_reward: 0.6, max_reward: 0.2}}\nstages: [{name: a}]", "sft.gate.max_reward: is 0.2, want more than sft.gate.min_reward (0.6)"},
		"collapse without signs": {"watch: {collapse: {window: 5, reward_drop: 0.5, signs: 2}}\nstages: [{name: a}]", "watch.collapse.signs: is 2, but 1 of reward_drop"},
		"collapse of no window":  {"watch: {collapse: {reward_drop: 0.5}}\nstages: [{name: a}]", "watch.collapse.window: is 0"},
		"ranges":                 {"stages: [{name: a, lr: 2, temperature: 99, filter: {rollouts: 1, min_pass_rate: 3}}]", "stages[0].filter.min_pass_rate: is 3, want 0 to 1"},
	} {
		_, err := config.Load("f", []byte(head+c.yaml+"\n"), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	sets := "eval: {sets: [{name: a, path: x}, {name: a, max_response_tokens: 999}]}\nstages: [{name: a}]\n"
	_, err := config.Load("f", []byte(sets), nil)
	for _, want := range []string{"eval.sets[1].path: is missing", `eval.sets[1].name: "a" is used twice`, "eval.sets[1].max_response_tokens: is 999, want less than"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("sets: %v, want %q", err, want)
		}
	}
}

// TestInStage: what a stage states counts in it alone, and the filter's default removes
// what all rollouts solve.
func TestInStage(t *testing.T) {
	run, err := config.Load("f", []byte("stages: [{name: a}, {name: b, temperature: 0.7, lr: 1e-5, rollouts_per_problem: 12, group_size: 6}]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a := run.InStage(0); a.Rollout.Temperature != 1 || a.RL.Optimizer.LR != run.RL.Optimizer.LR || a.RL.RolloutsPerProblem != 16 {
		t.Errorf("stage a: %+v", a.RL)
	}
	if b := run.InStage(1); b.Rollout.Temperature != 0.7 || b.RL.Optimizer.LR != 1e-5 || b.RL.RolloutsPerProblem != 12 || b.RL.GroupSize != 6 || run.RL.GroupSize != 8 {
		t.Errorf("stage b: %+v", b.RL)
	}
	for _, c := range []struct {
		filter config.Filter
		rate   float64
		keeps  bool
	}{
		{config.Filter{Rollouts: 8}, 1, false}, {config.Filter{Rollouts: 8}, 0, true},
		{config.Filter{Rollouts: 8, MinPassRate: 0.125}, 0, false}, {config.Filter{Rollouts: 8, MinPassRate: 0.125}, 0.125, true},
		{config.Filter{Rollouts: 8, MaxPassRate: 0.5}, 0.625, false}, {config.Filter{Rollouts: 8, MaxPassRate: 1}, 1, true},
	} {
		if c.filter.Keeps(c.rate) != c.keeps {
			t.Errorf("%+v keeps a rate of %g: %v", c.filter, c.rate, !c.keeps)
		}
	}
}
