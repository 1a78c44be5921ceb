package config_test

import (
	"errors"
	"strings"
	"testing"

	"temper/internal/config"
)

func TestHowPassesAreComputed(t *testing.T) {
	const text = "stages: [{name: a}]\nmodel: {compute: bfloat16, remat: true}\nrl: {pack: true}\n"
	run, err := config.Load("f.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := run.YAML()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  compute: bfloat16\n", "  remat: true\n", "  pack: true\n"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("frozen form lacks %q:\n%s", want, data)
		}
	}
	again, err := config.Load("frozen", data, nil)
	if err != nil || again.Model != run.Model || !again.RL.Pack {
		t.Errorf("frozen form loads to %+v, pack %v (%v)", again.Model, again.RL.Pack, err)
	}
	plain, err := config.Load("f.yaml", []byte("stages: [{name: a}]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = plain.YAML(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"compute:", "remat:", "pack:", "trainer:"} {
		if strings.Contains(string(data), key) {
			t.Errorf("a run that does not state %s freezes it, so that its hash is another:\n%s", key, data)
		}
	}
}

// TestWindow: sampling ahead needs what corrects for the older policy, and policies that
// are kept long enough. Without it nothing is frozen.
func TestWindow(t *testing.T) {
	for yaml, want := range map[string]string{
		"rl: {window: -1}": "f.yaml:2:6: rl.window: is -1",
		"rl: {window: 9}":  "f.yaml:2:6: rl.window: is 9",
		"rl: {window: 1}":  "rl.window: is 1, but nothing corrects for the older policy that samples: set rl.loss.correction.level to token",
		"rl: {window: 2, loss: {old_logprobs: rollout}}\ncheckpoint: {keep_policies: 3}": "checkpoint.keep_policies: is 3, want 0 or at least 4",
	} {
		_, err := config.Load("f.yaml", []byte("stages: [{name: a}]\n"+yaml+"\n"), nil)
		var ps config.Problems
		if !errors.As(err, &ps) || len(ps) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got\n%v\nwant one line with\n%s", yaml, err, want)
		}
	}
	for _, good := range []string{"window: 8, loss: {correction: {level: token, cap: 2}}", "window: 1, loss: {old_logprobs: rollout}", "window: 0"} {
		run, err := config.Load("f.yaml", []byte("stages: [{name: a}]\nrl: {"+good+"}\n"), nil)
		if err != nil {
			t.Errorf("%s: %v", good, err)
			continue
		}
		data, err := run.YAML()
		if err != nil || strings.Contains(string(data), "window:") != (run.RL.Window > 0) {
			t.Errorf("%s is frozen as (%v)\n%s", good, err, data)
		}
	}
	if err := config.Amendable("rl.window"); err == nil || !strings.Contains(err.Error(), "fork the run") {
		t.Errorf("rl.window can be amended: %v", err)
	}
}

// TestCheckpointsDoNotSayHowPassesAreComputed: the keys go beside model.path.
func TestCheckpointsDoNotSayHowPassesAreComputed(t *testing.T) {
	const text = "stages: [{name: a}]\nmodel: {path: /m, compute: bfloat16, remat: true}\n"
	run, err := config.Load("f.yaml", []byte(text), nil)
	if err != nil || run.Model.Compute != config.ComputeBFloat16 || !run.Model.Remat || run.Model.HiddenSize != 0 {
		t.Errorf("%+v, error %v", run.Model, err)
	}
}

func TestPassesThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct{ yaml, want string }{
		"type": {"model: {compute: float16}", `f.yaml:2:9: model.compute: is "float16", want one of float32, bfloat16`},
		"engine's log-probabilities": {"model: {compute: bfloat16}\nrl: {loss: {old_logprobs: rollout}}",
			"f.yaml:2:9: model.compute: is bfloat16, but rl.loss.old_logprobs is rollout: the engine computes in float32"},
		"kernels": {"trainer: {kernels: avx2}", `f.yaml:2:11: trainer.kernels: is "avx2", want one of native, portable`},
		"rows beyond a pass": {"model: {max_context: 1200}\nrl: {pack: true, microbatch_tokens: 1024}",
			"f.yaml:3:6: rl.pack: makes rows of up to 2048 tokens (model.max_context 1200, rounded up to a power of two), above rl.microbatch_tokens (1024)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Load("f.yaml", []byte("stages: [{name: a}]\n"+tt.yaml+"\n"), nil)
			var ps config.Problems
			if !errors.As(err, &ps) || len(ps) != 1 || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got\n%v\nwant one line with\n%s", err, tt.want)
			}
		})
	}
	for _, good := range []string{"model: {max_context: 1025}\nrl: {pack: true, microbatch_tokens: 1024}", "rl: {microbatch_tokens: 256}"} {
		if _, err := config.Load("f.yaml", []byte("stages: [{name: a}]\n"+good+"\n"), nil); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}
