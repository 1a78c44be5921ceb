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
