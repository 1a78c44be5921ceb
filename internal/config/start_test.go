package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
)

const stageText = "stages: [{name: a, data: {env: chase}}]\n"

// TestRunFromACheckpoint states no dimension, keeps the limits of the run and
// comes back from its frozen form as it was.
func TestRunFromACheckpoint(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "run.yaml")
	if err := os.WriteFile(file, []byte("model: {path: weights/qwen3, max_context: 300}\n"+stageText), 0o600); err != nil {
		t.Fatal(err)
	}
	run, err := config.LoadFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(run.Model, config.Model{Path: filepath.Join(dir, "weights/qwen3"), MaxContext: 300}); diff != "" {
		t.Errorf("model: got -, want +\n%s", diff)
	}
	frozen, err := run.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := config.Load("frozen", frozen, nil)
	if diff := cmp.Diff(again, run); err != nil || diff != "" {
		t.Errorf("frozen form: %v, got -, want +\n%s", err, diff)
	}
	if back, err := config.Load("x", frozen, map[string]string{"model.path": `""`}); err != nil || back.Model.HiddenSize == 0 {
		t.Errorf("without the path again: %v, hidden size %d", err, back.Model.HiddenSize)
	}
}

func TestCheckpointAndDimensionsExcludeEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		model string
		set   map[string]string
		want  []string
	}{
		"in the file": {"model: {path: q, hidden_size: 96, tie_embeddings: true}\n", nil, []string{
			"run.yaml:1:18: model.hidden_size: is 96, but model.path (q) has its own: leave it out",
			"run.yaml:1:35: model.tie_embeddings: is true, but model.path (q) has its own: leave it out"}},
		"override": {"model: {path: q}\n", map[string]string{"model.num_layers": "3"}, []string{
			"model.num_layers: is 3, but model.path (q) has its own: leave it out"}},
		"path as override": {"model: {rope_theta: 1e6}\n", map[string]string{"model.path": "q"}, []string{
			"model.rope_theta: is 1e+06, but model.path (q) has its own: leave it out"}},
		"limit of the run": {"model: {path: q, max_context: 4}\n", nil, []string{"model.max_context: is 4, want 16 to 1048576"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Load("run.yaml", []byte(c.model+"stages: [{name: a, max_response_tokens: 8, data: {env: chase}}]\n"), c.set)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error\n%v\nlacks\n%s", err, want)
				}
			}
		})
	}
}

// TestRecipeFromAPolicy drops what the policy says and keeps the rest; the frozen
// form of a run that does not use it is as it was.
func TestRecipeFromAPolicy(t *testing.T) {
	run, err := config.Load("r.yaml", []byte("model: {hidden_size: 64, max_context: 300, tie_embeddings: true}\nsft: {steps: 9}\n"+stageText), nil)
	if err != nil {
		t.Fatal(err)
	}
	if frozen, err := run.YAML(); err != nil || strings.Contains(string(frozen), "run:") {
		t.Errorf("frozen form states what is not used (%v):\n%s", err, frozen)
	}
	got, err := run.From("demo@12", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got.Model, config.Model{Run: "demo@12", MaxContext: 300}); diff != "" || got.SFT.Steps != 0 {
		t.Errorf("%d supervised updates; model: got -, want +\n%s", got.SFT.Steps, diff)
	}
	if got, err := run.From("demo@12", map[string]string{"sft.steps": "9"}); err != nil || got.SFT.Steps != 9 {
		t.Errorf("%d supervised updates (%v), want the 9 that were asked for", got.SFT.Steps, err)
	}
	_, err = run.From("demo", map[string]string{"model.num_layers": "3"})
	for _, want := range []string{"model.num_layers: is set to 3, but the policy demo has its own", `model.run: is "demo", want RUN@POLICY`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}
