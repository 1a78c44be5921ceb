package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
)

// TestOptimizerSwitches reads every switch and freezes it again.
func TestOptimizerSwitches(t *testing.T) {
	text := `rl:
  optimizer: {schedule: wsd, decay_steps: 4, min_lr_ratio: 0.1, skip_grad_norm: 50, decay_vectors: true, decay_embeddings: true, freeze: ["model.embed_tokens*", "lm_head.weight"]}
stages:
- {name: a}
- {name: b, reset_moments: true}
- {name: c, reset_schedule: true}
- {name: d, reset_optimizer: true}
`
	run, err := config.Load("f.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, want := run.RL.Optimizer, config.Default().RL.Optimizer
	want.Schedule, want.DecaySteps, want.MinLRRatio, want.SkipGradNorm = config.ScheduleWSD, 4, 0.1, 50
	want.DecayVectors, want.DecayEmbeddings, want.Freeze = true, true, []string{"model.embed_tokens*", "lm_head.weight"}
	if d := cmp.Diff(got, want); d != "" {
		t.Errorf("optimizer (-got +want):\n%s", d)
	}
	var resets [][2]bool
	for _, s := range run.Stages {
		resets = append(resets, [2]bool{s.FreshMoments(), s.FreshSchedule()})
	}
	if d := cmp.Diff(resets, [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}}); d != "" {
		t.Errorf("moments and schedule afresh (-got +want):\n%s", d)
	}
	frozen, err := run.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := config.Load("frozen", frozen, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(again, run); d != "" {
		t.Errorf("frozen form (-got +want):\n%s", d)
	}
}

// TestOptimizerMistakes: all at once, each with its key.
func TestOptimizerMistakes(t *testing.T) {
	text := `sft:
  optimizer: {schedule: step, min_lr_ratio: 2, skip_grad_norm: -1, freeze: ["model.[", ""]}
rl:
  optimizer: {schedule: constant, min_lr_ratio: 0.5, decay_steps: 3}
stages: [{name: a, reset_optimizer: true, reset_moments: true, reset_schedule: true}]
`
	_, err := config.Load("f.yaml", []byte(text), nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`sft.optimizer.schedule: is "step", want one of constant, linear, cosine, wsd`,
		"sft.optimizer.min_lr_ratio: is 2, want 0 to 1",
		"sft.optimizer.skip_grad_norm: is -1, want 0 to 1e+30",
		`sft.optimizer.freeze[0]: is "model.[", want a pattern`,
		`sft.optimizer.freeze[1]: is "", want a pattern`,
		"rl.optimizer.min_lr_ratio: is 0.5, but the constant schedule has no floor",
		`rl.optimizer.decay_steps: is 3 with schedule "constant": wsd, and no other, decays in the last decay_steps`,
		"stages[0].reset_moments: is part of reset_optimizer",
		"stages[0].reset_schedule: is part of reset_optimizer",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error\n%v\nwant a line with %q", err, want)
		}
	}
}
