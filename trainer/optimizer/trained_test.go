package optimizer_test

import (
	"errors"
	"strings"
	"testing"

	"temper/internal/config"
	"temper/trainer/model"
	"temper/trainer/optimizer"
)

func TestFreezeMistakes(t *testing.T) {
	m := model.Config{
		VocabSize: 37, HiddenSize: 16, IntermediateSize: 24, NumHiddenLayers: 2, NumAttentionHeads: 2, NumKeyValueHeads: 1,
		HeadDim: 8, MaxPositionEmbeddings: 96, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1,
	}
	err := optimizer.Check(m, "rl.optimizer", config.Optimizer{Freeze: []string{"model.norm.*", "embed*", "model.[", "lm_head*"}})
	var problems config.Problems
	if !errors.As(err, &problems) || len(problems) != 3 {
		t.Fatalf("error %v, want three problems", err)
	}
	for i, want := range []string{
		`rl.optimizer.freeze[1]: "embed*" matches no tensor; the model has model.embed_tokens.weight, model.layers.0-1.input_layernorm.weight, `,
		`rl.optimizer.freeze[2]: pattern "model.[": syntax error in pattern`,
		`rl.optimizer.freeze[3]: "lm_head*" matches no tensor`, // a tied head has none
	} {
		if !strings.Contains(problems[i].String(), want) {
			t.Errorf("problem %q, want %q", problems[i], want)
		}
	}
	if err := optimizer.Check(m, "", config.Optimizer{Freeze: []string{"*"}}); err == nil || !strings.Contains(err.Error(), "leaves nothing to train") {
		t.Errorf("everything frozen: error %v", err)
	}
	if err := optimizer.Check(m, "", config.Optimizer{}); err != nil {
		t.Errorf("nothing frozen: %v", err)
	}
}
