//go:build integration

package main_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// modelConfig is a Qwen3 whose vocabulary has room for the tokenizer of the test.
const modelConfig = `{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 1536, "hidden_size": 32,
"intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
"max_position_embeddings": 1024, "rope_theta": 10000.0, "rms_norm_eps": 1e-06, "tie_word_embeddings": true}`

// TestRunsByAChatTemplate makes a short run with the prompt of rStar2-Agent; then,
// twice, one from a model directory with a chat template of its own, which has to
// give the same bytes.
func TestRunsByAChatTemplate(t *testing.T) {
	short := []string{
		"--run", "../../configs/rstar2.yaml", "--exit", "--set", "sft.steps=4", "--set", "sft.data.num=256", "--set", "stages[0].until.steps=1",
		"--set", "stages[1].until.steps=1", "--set", "eval.num_problems=2", "--set", "rl.problems_per_step=2",
	}
	first := newPlace(t)
	first.start(append([]string{"up", "--run-id", "first"}, short...)...).end(0, runTimeout)
	policy := filepath.Join(first.home, "store", "runs", "first", "policies", "v000000")
	if out := string(readAll(t, filepath.Join(policy, "chat_template.jinja"))); !strings.Contains(out, `<reason>`) {
		t.Errorf("the policy has the template %q", out)
	}

	yaml := ownModel(t, policy)
	var runs []map[string][]byte
	for range 2 {
		p := newPlace(t)
		p.start("up", "--run", yaml, "--run-id", "own", "--exit").end(0, runTimeout)
		runs = append(runs, lasting(t, filepath.Join(p.home, "store", "runs", "own")))
	}
	if !maps.EqualFunc(runs[0], runs[1], bytes.Equal) {
		for name, data := range runs[0] {
			if !bytes.Equal(data, runs[1][name]) {
				t.Errorf("%s differs from run to run", name)
			}
		}
		t.Errorf("%d files in the first run, %d in the second", len(runs[0]), len(runs[1]))
	}
}

// ownModel makes a model directory with the tokenizer of a policy and a template
// of its own, and returns a configuration of a run that starts from it.
func ownModel(t *testing.T, policy string) (yaml string) {
	t.Helper()
	top := t.TempDir()
	dir, dimensions := filepath.Join(top, "model"), filepath.Join(top, "config.json")
	writeAll(t, dimensions, []byte(modelConfig))
	if out, err := exec.Command(filepath.Join(bin, "temper"), "model", "init", dir, "--config", dimensions).CombinedOutput(); err != nil {
		t.Fatalf("model init: %v\n%s", err, out)
	}
	writeAll(t, filepath.Join(dir, "tokenizer.json"), readAll(t, filepath.Join(policy, "tokenizer.json")))
	writeAll(t, filepath.Join(dir, "chat_template.jinja"), readAll(t, "../../internal/chat/testdata/templates/chatml-tools.jinja"))
	yaml = filepath.Join(top, "own.yaml")
	writeAll(t, yaml, []byte(`name: own
model: {path: "`+dir+`", max_context: 1024}
sft: {data: {env: chase, levels: [1], num: 64}, batch_size: 2, steps: 2}
rl: {problems_per_step: 2, rollouts_per_problem: 4, group_size: 2}
rollout: {chat_template: checkpoint}
stages: [{name: one, data: {env: chase, levels: [1], num: 8}, max_response_tokens: 96, max_turns: 2, until: {steps: 2}}]
eval: {num_problems: 2}
`))
	return yaml
}

// lasting reads the files of a run that hold no times.
func lasting(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, pattern := range []string{"policies/*/*", "steps/*/trajectories/*", "evals/*.jsonl", "data/*.jsonl", "chat_template.json"} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("nothing at %s (%v)", pattern, err)
		}
		for _, path := range found {
			name, err := filepath.Rel(folder, path)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = readAll(t, path)
		}
	}
	return files
}

func readAll(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeAll(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
