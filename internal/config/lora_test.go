package config_test

import (
	"strings"
	"testing"

	"temper/internal/config"
)

// TestMistakesOfAdapters: every mistake about trainer.lora is reported at once, by its key.
func TestMistakesOfAdapters(t *testing.T) {
	r := config.Default()
	r.Trainer.LoRA = config.LoRA{Rank: 8, Targets: []string{"q_proj", "lm_head", "q_proj"}}
	r.SFT.Optimizer.Freeze = []string{"model.norm.weight"}
	problems := r.Validate().Error()
	for _, want := range []string{
		"trainer.lora: trains adapters beside weights that stay as they are, and this run starts from random ones: want model.path or model.run",
		`trainer.lora.targets[1]: is "lm_head", want one of q_proj`, "trainer.lora.targets[2]: names q_proj twice", "sft.optimizer.freeze: has no part beside trainer.lora",
	} {
		if !strings.Contains(problems, want) {
			t.Errorf("no %q in\n%s", want, problems)
		}
	}
	r = config.Default()
	r.Trainer.LoRA = config.LoRA{Alpha: 16}
	if problems := r.Validate().Error(); !strings.Contains(problems, "trainer.lora.rank: is 0") {
		t.Errorf("alpha without a rank: %s", problems)
	}
	if got := (config.LoRA{Rank: 8}).Scale(); got != 16 {
		t.Errorf("alpha of rank 8: %v, want twice the rank", got)
	}
}
