package config_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"temper/internal/config"
)

func TestObjectivesThatAreRefused(t *testing.T) {
	tests := []struct {
		name, loss string
		want       []string
	}{
		{"unknown names", "{objective: ppo, aggregation: mean, old_logprobs: both, overlong: drop, kl: {coefficient: 1, estimator: k4}, correction: {level: word, cap: 2}}",
			[]string{`rl.loss.objective: is "ppo", want one of grpo, gspo, cispo`,
				`rl.loss.aggregation: is "mean", want one of token_mean, sequence_mean, constant`,
				`rl.loss.old_logprobs: is "both", want one of recompute, rollout`,
				`rl.loss.overlong: is "drop", want one of keep, mask`,
				`rl.loss.kl.estimator: is "k4", want one of k3, k3_ratio`,
				`rl.loss.correction.level: is "word", want one of token, sequence`}},
		{"unknown key", "{clip: 0.2}", []string{"rl.loss.clip: unknown key"}},
		{"bounds", "{clip_low: 2, clip_high: 0, entropy_fraction: 1.5, max_logits: 3, kl: {coefficient: -1}}",
			[]string{"rl.loss.clip_low: is 2", "rl.loss.clip_high: is 0", "rl.loss.entropy_fraction: is 1.5", "rl.loss.max_logits: is 3", "rl.loss.kl.coefficient: is -1"}},
		{"dual clip inside the other", "{dual_clip: 1.2}", []string{"rl.loss.dual_clip: is 1.2, want more than 1 + rl.loss.clip_high (1.28)"}},
		{"constant without its number", "{aggregation: constant}", []string{"rl.loss.constant_tokens: is 0"}},
		{"number without constant", "{constant_tokens: 8}", []string{"rl.loss.constant_tokens: is 8"}},
		{"gspo over tokens", "{objective: gspo}", []string{`rl.loss.aggregation: is "", but objective gspo is a mean over sequences`}},
		{"gspo with parts of tokens", "{objective: gspo, aggregation: sequence_mean, entropy_fraction: 0.2, correction: {level: token, cap: 2}}",
			[]string{"rl.loss.entropy_fraction: does not go with objective gspo", "rl.loss.correction.level: is token"}},
		{"cispo with a dual clip", "{objective: cispo, dual_clip: 3}", []string{"rl.loss.dual_clip: does not go with objective cispo"}},
		{"correction counted twice", "{old_logprobs: rollout, correction: {level: token, cap: 2}}", []string{"rl.loss.correction.level: does not go with old_logprobs rollout"}},
		{"weights without a bound", "{correction: {level: token}}", []string{"rl.loss.correction.cap: is 0 and there is no mask"}},
		{"bounds without a level", "{correction: {mask_low: 0.5, mask_high: 5}}", []string{"rl.loss.correction.level: is missing"}},
		{"mask upside down", "{correction: {level: token, mask_low: 5, mask_high: 0.5}}", []string{"rl.loss.correction.mask_low: is 5", "rl.loss.correction.mask_high: is 0.5"}},
		{"estimator of nothing", "{kl: {estimator: k3}}", []string{"rl.loss.kl.estimator: is \"k3\", but rl.loss.kl.coefficient is 0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := config.Load("f.yaml", []byte("stages: [{name: a}]\nrl:\n  loss: "+tt.loss+"\n"), nil)
			var ps config.Problems
			if !errors.As(err, &ps) {
				t.Fatalf("got %v, want Problems", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got\n%v\nwant a line with %q", err, want)
				}
			}
			if len(ps) != len(tt.want) {
				t.Errorf("%d problems, want %d:\n%v", len(ps), len(tt.want), err)
			}
		})
	}
}

// TestObjectivesLeaveNoTraceWhereTheyAreOff: the frozen form of a run that uses
// none of the switches, and with it the run's hash, is what it was without them.
func TestObjectivesLeaveNoTraceWhereTheyAreOff(t *testing.T) {
	run, err := config.LoadFile("../../configs/demo.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	frozen, err := run.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if want := "  loss:\n    clip_low: 0.2\n    clip_high: 0.28\n  roc:\n"; !strings.Contains(string(frozen), want) {
		t.Errorf("frozen form\n%s\nwant in it\n%s", frozen, want)
	}
	data, err := json.Marshal(run.RL.Loss)
	if want := `{"clip_low":0.2,"clip_high":0.28}`; err != nil || string(data) != want {
		t.Errorf("JSON is %s (%v), want %s", data, err, want)
	}
}

func TestObjectivesThatGoTogether(t *testing.T) {
	for _, loss := range []string{
		"{objective: gspo, aggregation: sequence_mean, clip_low: 3e-4, clip_high: 4e-4, correction: {level: sequence, cap: 2}}",
		"{objective: cispo, clip_low: 1, clip_high: 4, kl: {coefficient: 1e-3, estimator: k3_ratio}}",
		"{aggregation: constant, constant_tokens: 8192, dual_clip: 3, overlong: mask, entropy_fraction: 0.2, max_logits: 100000000}",
		"{old_logprobs: rollout}", "{correction: {level: token, mask_low: 0.5, mask_high: 5}}",
		"{objective: grpo, aggregation: token_mean, old_logprobs: recompute, overlong: keep}",
	} {
		run, err := config.Load("f.yaml", []byte("stages: [{name: a}]\nrl:\n  loss: "+loss+"\n"), nil)
		if err != nil {
			t.Errorf("%s: %v", loss, err)
			continue
		}
		data, err := run.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := config.Load("frozen", data, nil); err != nil || again.RL.Loss != run.RL.Loss {
			t.Errorf("%s: frozen form loads to %+v (%v), want %+v", loss, again.RL.Loss, err, run.RL.Loss)
		}
	}
}
