package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/cli"
	"temper/trainer/weights/hf"
)

const (
	tiedModel   = "../../trainer/weights/hf/testdata/tied"
	untiedModel = "../../trainer/weights/hf/testdata/untied"
)

// output runs a command line that must succeed.
func output(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := execute(args, &stdout, &stderr); code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, stderr.String())
	}
	return stdout.String()
}

// TestModelInspect: the report in its two forms.
func TestModelInspect(t *testing.T) {
	text := output(t, "model", "inspect", untiedModel)
	for _, want := range []string{"2 layers", "own head", "25824 in 51648 bytes", "BF16: 25824 values", "model-00003-of-00003.safetensors: 1 tensors", "tokenizer.json: no such file"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	var report hf.Report
	if err := json.Unmarshal([]byte(output(t, "model", "inspect", tiedModel, "--json")), &report); err != nil {
		t.Fatal(err)
	}
	if report.Parameters != 23776 || report.DTypes["F32"] != 23776 || len(report.Shards) != 1 || len(report.Problems) != 2 || !report.Config.TieWordEmbeddings {
		t.Errorf("report %+v", report)
	}
}

// TestModelInitThenLogits: a seed is a model, and its weights are the ones of
// the type that was asked for.
func TestModelInitThenLogits(t *testing.T) {
	config := filepath.Join(tiedModel, "config.json")
	logits := map[string]string{}
	for name, flags := range map[string][]string{"a": nil, "b": nil, "seed": {"--seed", "2"}, "half": {"--dtype", "bfloat16"}} {
		dir := filepath.Join(t.TempDir(), "out")
		output(t, append([]string{"model", "init", dir, "--config", config}, flags...)...)
		logits[name] = output(t, "model", "logits", dir, "--ids", "1,2,3", "--all")
	}
	var out struct {
		IDs, Positions []int
		Logits         [][]float32
	}
	if err := json.Unmarshal([]byte(logits["a"]), &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Logits) != 3 || len(out.Logits[0]) != 64 || len(out.IDs) != 3 || out.Positions[2] != 2 {
		t.Errorf("%d rows, ids %v, positions %v", len(out.Logits), out.IDs, out.Positions)
	}
	if logits["a"] != logits["b"] {
		t.Error("the same seed gave two models")
	}
	if logits["a"] == logits["seed"] || logits["a"] == logits["half"] {
		t.Error("seed or type made no difference")
	}
}

// TestModelBadInput: wrong command lines are the user's, one line a mistake.
func TestModelBadInput(t *testing.T) {
	config := filepath.Join(tiedModel, "config.json")
	for want, args := range map[string][]string{
		"none: no such file or directory": {"inspect", "none"},
		"--config is missing":             {"init", "out"},
		`dtype "int8", want float32 (f32), bfloat16 (bf16) or float16 (f16)`: {"init", "out", "--config", config, "--dtype", "int8"},
		"the directory is not empty":                                         {"init", tiedModel, "--config", config},
		"model_type: missing":                                                {"init", "out", "--config", filepath.Join(untiedModel, "model.safetensors.index.json")},
		"--ids: 0 ids, want 1 to 128":                                        {"logits", tiedModel},
		"--ids: id 64 at position 1 is outside the vocabulary":               {"logits", tiedModel, "--ids", "3,64"},
		"--ids: 129 ids, want 1 to 128":                                      {"logits", tiedModel, "--ids", strings.Repeat("1,", 128) + "1"},
		`--backend: backend "warp": unknown backend`:                         {"logits", tiedModel, "--ids", "1", "--backend", "warp"},
	} {
		var stdout, stderr bytes.Buffer
		code := execute(append([]string{"model"}, args...), &stdout, &stderr)
		if code != cli.ExitUser || !strings.Contains(stderr.String(), want) {
			t.Errorf("model %v: exit code %d, %q, want 2 and %q", args, code, stderr.String(), want)
		}
	}
}
