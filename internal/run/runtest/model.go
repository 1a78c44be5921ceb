package runtest

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/chat"
	"temper/trainer/model"
	"temper/trainer/weights/hf"
	"temper/trainer/weights/safetensors"
)

// StartRecipe is the configuration of a run from a checkpoint with one supervised update.
const StartRecipe = `
name: test
seed: 5
model: {max_context: 480}
sft: {data: {env: chase, levels: [1], num: 10}, batch_size: 2, steps: 1}
rl: {problems_per_step: 3, rollouts_per_problem: 6, group_size: 4}
stages: [{name: first, data: {env: chase, levels: [1], num: 7}, max_response_tokens: 120, max_turns: 3, until: {steps: 1}}]
eval: {num_problems: 4}
`

// StartModel has more positions than the run uses and a vocabulary that is
// padded beyond its tokenizer's.
func StartModel() model.Config {
	return model.Config{
		VocabSize: 288, HiddenSize: 8, IntermediateSize: 16, NumHiddenLayers: 1, NumAttentionHeads: 2, NumKeyValueHeads: 1,
		HeadDim: 4, MaxPositionEmbeddings: 512, RopeTheta: 1e6, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02,
	}
}

// Descriptions are the files that each policy takes along.
var Descriptions = map[string][]byte{
	"tokenizer_config.json": []byte(`{"eos_token": "<|im_end|>"}`),
	"chat_template.jinja":   []byte("{{ messages }}"),
}

// WriteModel makes a checkpoint directory of random weights in bfloat16.
func WriteModel(t testing.TB, m model.Config, change func(files map[string][]byte)) (dir string) {
	t.Helper()
	tok, err := chat.TrainTokenizer(chat.Config{}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	files := maps.Clone(Descriptions)
	if files[hf.TokenizerFile], err = tok.Marshal(); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(files)
	}
	weights, err := model.InitialTensors(m, 3)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "model")
	if err := hf.Create(dir, m, model.ByName(weights), hf.Layout{DType: safetensors.BF16, Files: files}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// CheckpointRecipe is the Recipe for model.path.
var CheckpointRecipe = strings.Replace(Recipe,
	"{hidden_size: 8, num_layers: 1, num_heads: 1, num_kv_heads: 1, head_dim: 8, intermediate_size: 8, max_context: 400}", "{max_context: 480}", 1)

// ProblemLines is n problems as JSON lines.
func ProblemLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id": "m%d", "env": "chase", "prompt": "k%d?", "answer": "1"}`+"\n", i, i+10)
	}
	return b.String()
}
