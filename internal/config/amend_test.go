package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
)

func amended(list ...config.Amendment) config.Run {
	r := config.Default()
	r.Stages = []config.Stage{
		{Name: "one", Data: config.Source{Env: "chase", Levels: []int{1}, Num: 64}, MaxResponseTokens: 64, MaxTurns: 4, Until: config.Until{Steps: 3}},
		{Name: "two", Data: config.Source{Env: "chase", Levels: []int{1}, Num: 64}, MaxResponseTokens: 64, MaxTurns: 4, Until: config.Until{Steps: 3}},
	}
	r.Amendments = list
	return r
}

// TestAmendmentsHoldFromTheirStep: earlier steps see the values of their time,
// the base stays as it was, and the later of two orders counts.
func TestAmendmentsHoldFromTheirStep(t *testing.T) {
	r := amended(
		config.Amendment{FromStep: 3, Set: map[string]string{"rl.optimizer.lr": "1e-3", "stages[1].max_turns": "9"}},
		config.Amendment{FromStep: 5, Set: map[string]string{"rl.optimizer.lr": "2e-3"}},
		config.Amendment{FromStep: 5, Repeat: "two"},
	)
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	for step, want := range map[int]float64{1: 4e-4, 2: 4e-4, 3: 1e-3, 4: 1e-3, 5: 2e-3, 99: 2e-3} {
		if got := r.At(step).RL.Optimizer.LR; got != want {
			t.Errorf("step %d: learning rate %g, want %g", step, got, want)
		}
	}
	if got := r.Stages[1].MaxTurns; got != 4 {
		t.Errorf("the base has max_turns %d, want 4", got)
	}
	if a, b := r.At(4).Repeated(), r.Newest().Repeated(); len(a) != 0 || !cmp.Equal(b, []int{1}) {
		t.Errorf("repeated before step 5: %v, from it on: %v; want none and stage 1 from 0", a, b)
	}
}

// TestAmendmentsSurviveTheirFile: the frozen document reads back to the same run.
func TestAmendmentsSurviveTheirFile(t *testing.T) {
	want := amended(config.Amendment{
		FromStep: 2, Set: map[string]string{"rl.optimizer.lr": "1e-3", "rl.roc.enabled": "false", "rl.roc.mode": "released"},
		Reason: "it: \"jumps\"\nup", By: "ann@host", At: "2026-01-02T03:04:05Z",
	})
	data, err := want.YAML()
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Load("config.yaml", data, nil)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s\n%s", err, diff, data)
	}
}

func TestBadAmendmentsAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		a    config.Amendment
		want []string
	}{
		"unknown key":      {config.Amendment{FromStep: 1, Set: map[string]string{"rl.optimizer.rl": "1"}}, []string{"rl.optimizer.rl: unknown key", "known here: "}},
		"seed":             {config.Amendment{FromStep: 1, Set: map[string]string{"seed": "2"}}, []string{"seed: cannot be changed", "fork"}},
		"model":            {config.Amendment{FromStep: 1, Set: map[string]string{"model.num_layers": "2"}}, []string{"model.num_layers: cannot", "shape"}},
		"tokenizer":        {config.Amendment{FromStep: 1, Set: map[string]string{"tokenizer.num_merges": "2"}}, []string{"tokenizer.num_merges: cannot"}},
		"data":             {config.Amendment{FromStep: 1, Set: map[string]string{"stages[0].data.num": "99"}}, []string{"stages[0].data.num: cannot", "problems"}},
		"problems a step":  {config.Amendment{FromStep: 1, Set: map[string]string{"rl.problems_per_step": "9"}}, []string{"rl.problems_per_step: cannot", "ledger"}},
		"held-out":         {config.Amendment{FromStep: 1, Set: map[string]string{"eval.num_problems": "9"}}, []string{"eval.num_problems: cannot"}},
		"prompts":          {config.Amendment{FromStep: 1, Set: map[string]string{"rollout.system_prompt": "x"}}, []string{"rollout.system_prompt: cannot"}},
		"no such stage":    {config.Amendment{FromStep: 1, Set: map[string]string{"stages[7].max_turns": "9"}}, []string{"stages[7].max_turns: no element"}},
		"wrong type":       {config.Amendment{FromStep: 1, Set: map[string]string{"rl.optimizer.lr": "fast"}}, []string{"rl.optimizer.lr: want a number"}},
		"out of range":     {config.Amendment{FromStep: 2, Set: map[string]string{"rl.group_size": "99"}}, []string{"rl.group_size: from step 2: is 99, above rl.rollouts_per_problem"}},
		"nothing":          {config.Amendment{FromStep: 0}, []string{"from_step: is 0", "set: is empty"}},
		"a section":        {config.Amendment{FromStep: 1, Set: map[string]string{"checkpoint": "{keep: 3}"}}, []string{"checkpoint: is a section: name the keys in it one by one (best, "}},
		"shared type":      {config.Amendment{FromStep: 1, Set: map[string]string{"sft.optimizer.lr": "1"}}, []string{"sft.optimizer.lr: cannot be changed during a run: the supervised updates are made; fork"}},
		"repeat of nobody": {config.Amendment{FromStep: 1, Repeat: "three"}, []string{`no stage "three"`}},
		"several at once": {config.Amendment{FromStep: 1, Set: map[string]string{"seed": "2", "rl.optimizer.lr": "x", "no": "y"}},
			[]string{"seed: cannot", "rl.optimizer.lr: want", "no: unknown key"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := amended(tt.a).Validate()
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error\n%v\nwants %q", err, want)
				}
			}
		})
	}
}

// TestWarnings: only a jump of the learning rate by more than ten, up or down.
func TestWarnings(t *testing.T) {
	before := amended()
	for lr, want := range map[float64]string{
		4e-4: "", 4e-3: "", 4e-5: "", 1e-3: "",
		0.1:  "rl.optimizer.lr: moves from 0.0004 to 0.1, by a factor of 250: more than 10 at once",
		1e-5: "rl.optimizer.lr: moves from 0.0004 to 1e-05, by a factor of 40: more than 10 at once",
	} {
		after := before
		after.RL.Optimizer.LR = lr
		got := strings.Join(config.Warnings(before, after), "\n")
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("lr %g: %q, want %q", lr, got, want)
		}
	}
}
