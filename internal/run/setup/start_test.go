package setup_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob/memblob"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/run/setup"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
	"temper/trainer/weights/hf"
)

// newStart opens and prepares a run that starts from a directory.
func newStart(t testing.TB, dir string) *runtest.Run {
	t.Helper()
	return runtest.PrepareConfig(t, memblob.New(), "demo", runtest.StartRecipe, map[string]string{"model.path": dir})
}

// learn makes the supervised update with a real trainer and returns the files
// of the policy after it.
func learn(t testing.TB, h *runtest.Run) (policy run.Policy, dir string) {
	t.Helper()
	m := newTrainer(h.Store)
	if _, err := m.TrainSFT(t.Context(), learner.SFTInput{Run: h.Ref, To: 1, Save: true}); err != nil {
		t.Fatal(err)
	}
	policy, err := m.Publish(t.Context(), learner.PublishInput{Run: h.Ref})
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for key, data := range runtest.Dump(t, h.Store) {
		if name, ok := strings.CutPrefix(key, h.Layout.Policy(0).Dir()+"/"); ok {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return policy, dir
}

// TestRunStartsFromACheckpoint: the run trains the weights of the directory with
// its tokenizer, on a machine that does not have it, and publishes a directory.
func TestRunStartsFromACheckpoint(t *testing.T) {
	dir := runtest.WriteModel(t, runtest.StartModel(), nil)
	original := open(t, dir)
	h := newStart(t, dir)
	ready, err := setup.Prepare(t.Context(), h.Store, h.Ref, func(string) {})
	if err != nil || ready.VocabSize != runtest.StartModel().VocabSize || ready.Start == nil {
		t.Fatalf("prepared %+v, error %v; want the model's vocabulary and a start", ready, err)
	}
	if err := os.Rename(dir, dir+"-gone"); err != nil {
		t.Fatal(err)
	}
	start, err := checkpoint.LoadWeights(t.Context(), h.Store, ready.Start.Policy)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byName(start.Weights), original); diff != "" {
		t.Errorf("stored start: got -, want +\n%s", diff)
	}

	policy, published := learn(t, h)
	m, err := hf.Load(published)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if diff := cmp.Diff(m.Config.Config, runtest.StartModel()); diff != "" || m.Config.DType != "float32" {
		t.Errorf("published as %s: got -, want +\n%s", m.Config.DType, diff)
	}
	for name, want := range runtest.Descriptions {
		if got, err := m.ReadFile(name); err != nil || string(got) != string(want) {
			t.Errorf("%s: %q, error %v; want %q", name, got, err, want)
		}
	}
	// One update at the learning rate of a warm-up moves weights a little.
	weights := open(t, published)
	moved, far := 0, float32(0)
	for i, w := range weights {
		for k, v := range w.Data {
			d := max(v-original[i].Data[k], original[i].Data[k]-v)
			far = max(far, d)
			if d > 0 {
				moved++
			}
		}
	}
	if moved == 0 || far > 1e-2 {
		t.Errorf("%d weights moved, by %v at most: the update did not begin at the checkpoint", moved, far)
	}
	if again, _ := learn(t, newStart(t, dir+"-gone")); again != policy {
		t.Errorf("the same run gives %+v, then %+v", policy, again)
	}
}

func open(t testing.TB, dir string) []model.Tensor {
	t.Helper()
	m, err := hf.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var weights []model.Tensor
	for tensor, err := range m.All() {
		if err != nil {
			t.Fatal(err)
		}
		weights = append(weights, tensor)
	}
	return byName(weights)
}

func byName(weights []model.Tensor) []model.Tensor {
	return slices.SortedFunc(slices.Values(weights), func(a, b model.Tensor) int { return strings.Compare(a.Name, b.Name) })
}

// TestDirectoryThatChangesUnderAStart is a conflict, not a mix of two models.
func TestDirectoryThatChangesUnderAStart(t *testing.T) {
	dir := runtest.WriteModel(t, runtest.StartModel(), nil)
	h := newStart(t, dir)
	if err := h.Store.Delete(t.Context(), h.Layout.Data().Ready()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := setup.Prepare(t.Context(), h.Store, h.Ref, func(string) {})
	runtest.WantFault(t, err, fault.Conflict, "start/policy.json")
}

// TestStartsThatCannotBe are refused when the run is opened, before anything is stored.
func TestStartsThatCannotBe(t *testing.T) {
	short := runtest.StartModel()
	short.MaxPositionEmbeddings = 399
	small := runtest.StartModel()
	small.VocabSize = 200
	for name, c := range map[string]struct {
		dir  string
		want []string
	}{
		"missing folder": {filepath.Join(t.TempDir(), "none"), []string{"model.path: ", "none: no such file or directory"}},
		"wrong architecture": {runtest.WriteModel(t, runtest.StartModel(), func(files map[string][]byte) {
			files[hf.ConfigFile] = []byte(`{"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text"}`)
		}), []string{"model.path: ", `model_type: "gemma3_text", want one of qwen3, `}},
		"too few positions":       {runtest.WriteModel(t, short, nil), []string{"model.max_context: is 480", "has 399 positions"}},
		"vocabulary is too small": {runtest.WriteModel(t, small, nil), []string{"model.path: ", "tokenizer.json: ", "the model's vocabulary is 200"}},
		"tokenizer of another format": {runtest.WriteModel(t, short, func(files map[string][]byte) {
			files[hf.TokenizerFile] = []byte(strings.ReplaceAll(string(files[hf.TokenizerFile]), "<|im_start|>", "<|start|>"))
		}), []string{"has 399 positions", "tokenizer lacks special token <|im_start|>"}},
		"no tokenizer": {"../../../trainer/weights/hf/testdata/tied", []string{"has 128 positions", "tokenizer.json: no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := runtest.Fill(t, nil)
			_, err := runtest.Open(t, store, run.Input{
				RunID: "x", Config: runtest.Text(t, runtest.StartRecipe), Set: map[string]string{"model.path": c.dir},
			})
			runtest.WantFault(t, err, fault.InvalidConfig, c.want...)
			if left := runtest.Dump(t, store); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
	_, err := runtest.Open(t, runtest.Fill(t, nil), run.Input{
		RunID: "x", Config: runtest.Text(t, runtest.Recipe), Set: map[string]string{"model.path": runtest.WriteModel(t, runtest.StartModel(), nil)},
	})
	runtest.WantFault(t, err, fault.InvalidConfig, "model.hidden_size: is 8, but model.path")
}

// TestStartThatIsLost is an error of every activity that needs it.
func TestStartThatIsLost(t *testing.T) {
	h := newStart(t, runtest.WriteModel(t, runtest.StartModel(), nil))
	if err := h.Store.Delete(context.Background(), h.Layout.Dir()+"/start/model.safetensors"); err != nil {
		t.Fatal(err)
	}
	m := runtest.Boot(h.Store, &runtest.Fate{})
	if _, err := m.TrainSFT(t.Context(), learner.SFTInput{Run: h.Ref, To: 1}); err == nil || !strings.Contains(err.Error(), "start/model.safetensors") {
		t.Errorf("error %v does not name the weights", err)
	}
}
