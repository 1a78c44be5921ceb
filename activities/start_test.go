package activities_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/temporal"

	"temper/activities"
	"temper/internal/blob/memblob"
	"temper/internal/chat"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/run"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/hf"
	"temper/trainer/qwen3"
	"temper/trainer/safetensors"
)

// startConfig is a run from a checkpoint with one supervised update.
const startConfig = `
name: test
seed: 5
model: {max_context: 480}
sft: {data: {env: chase, levels: [1], num: 10}, batch_size: 2, steps: 1}
rl: {problems_per_step: 3, rollouts_per_problem: 6, group_size: 4}
stages: [{name: first, data: {env: chase, levels: [1], num: 7}, max_response_tokens: 120, max_turns: 3, until: {steps: 1}}]
eval: {num_problems: 4}
`

// startModel has more positions than the run uses and a vocabulary that is
// padded beyond its tokenizer's.
func startModel() qwen3.Config {
	return qwen3.Config{
		VocabSize: 288, HiddenSize: 8, IntermediateSize: 16, NumHiddenLayers: 1, NumAttentionHeads: 2, NumKeyValueHeads: 1,
		HeadDim: 4, MaxPositionEmbeddings: 512, RopeTheta: 1e6, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02,
	}
}

// descriptions are the files that each policy takes along.
var descriptions = map[string][]byte{
	"tokenizer_config.json": []byte(`{"eos_token": "<|im_end|>"}`),
	"chat_template.jinja":   []byte("{{ messages }}"),
}

// writeModel makes a checkpoint directory of random weights in bfloat16.
func writeModel(t testing.TB, m qwen3.Config, change func(files map[string][]byte)) (dir string) {
	t.Helper()
	tok, err := chat.TrainTokenizer(chat.Config{}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	files := maps.Clone(descriptions)
	if files[hf.TokenizerFile], err = tok.Marshal(); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(files)
	}
	weights, err := qwen3.InitialTensors(m, 3)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "model")
	if err := hf.Create(dir, m, qwen3.ByName(weights), hf.Layout{DType: safetensors.BF16, Files: files}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newStart opens and prepares a run that starts from a directory.
func newStart(t testing.TB, dir string) *house {
	t.Helper()
	return prepareConfig(t, memblob.New(), "demo", startConfig, map[string]string{"model.path": dir})
}

// learn makes the supervised update with a real trainer and returns the files
// of the policy after it.
func (h *house) learn(t testing.TB) (policy run.Policy, dir string) {
	t.Helper()
	m := &activities.Trainer{Learner: learner.NewService(learner.Config{Store: h.store, Now: still, New: func(r *run.Loaded) (learner.Learner, error) {
		return trainer.New(trainer.Config{Model: r.Model, MicrobatchTokens: 1024, Temperature: 1, Loss: r.Config.RL.Loss})
	}})}
	if _, err := m.TrainSFT(t.Context(), activities.TrainSFTInput{Run: h.run, To: 1, Save: true}); err != nil {
		t.Fatal(err)
	}
	policy, err := m.PublishPolicy(t.Context(), activities.PublishInput{Run: h.run})
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for key, data := range dump(t, h.store) {
		if name, ok := strings.CutPrefix(key, h.layout.Policy(0)+"/"); ok {
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
	dir := writeModel(t, startModel(), nil)
	original := open(t, dir)
	h := newStart(t, dir)
	ready, err := h.control.PrepareData(t.Context(), activities.PrepareDataInput{Run: h.run})
	if err != nil || ready.VocabSize != startModel().VocabSize || ready.Start == nil {
		t.Fatalf("prepared %+v, error %v; want the model's vocabulary and a start", ready, err)
	}
	if err := os.Rename(dir, dir+"-gone"); err != nil {
		t.Fatal(err)
	}
	start, err := checkpoint.LoadWeights(t.Context(), h.store, ready.Start.Policy)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byName(start.Weights), original); diff != "" {
		t.Errorf("stored start: got -, want +\n%s", diff)
	}

	policy, published := h.learn(t)
	m, err := hf.Load(published)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if diff := cmp.Diff(m.Config.Config, startModel()); diff != "" || m.Config.DType != "float32" {
		t.Errorf("published as %s: got -, want +\n%s", m.Config.DType, diff)
	}
	for name, want := range descriptions {
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
	if again, _ := newStart(t, dir+"-gone").learn(t); again != policy {
		t.Errorf("the same run gives %+v, then %+v", policy, again)
	}
}

func open(t testing.TB, dir string) []qwen3.Tensor {
	t.Helper()
	m, err := hf.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var weights []qwen3.Tensor
	for tensor, err := range m.All() {
		if err != nil {
			t.Fatal(err)
		}
		weights = append(weights, tensor)
	}
	return byName(weights)
}

func byName(weights []qwen3.Tensor) []qwen3.Tensor {
	return slices.SortedFunc(slices.Values(weights), func(a, b qwen3.Tensor) int { return strings.Compare(a.Name, b.Name) })
}

// TestDirectoryThatChangesUnderAStart is a conflict, not a mix of two models.
func TestDirectoryThatChangesUnderAStart(t *testing.T) {
	dir := writeModel(t, startModel(), nil)
	h := newStart(t, dir)
	if err := h.store.Delete(t.Context(), h.layout.DataReady()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := h.control.PrepareData(t.Context(), activities.PrepareDataInput{Run: h.run})
	wantKind(t, err, string(fault.Conflict), "start/policy.json")
}

// TestStartsThatCannotBe are refused when the run is opened, before anything is stored.
func TestStartsThatCannotBe(t *testing.T) {
	short := startModel()
	short.MaxPositionEmbeddings = 399
	small := startModel()
	small.VocabSize = 200
	for name, c := range map[string]struct {
		dir  string
		want []string
	}{
		"missing folder": {filepath.Join(t.TempDir(), "none"), []string{"model.path: ", "none: no such file or directory"}},
		"wrong architecture": {writeModel(t, startModel(), func(files map[string][]byte) {
			files[hf.ConfigFile] = []byte(`{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}`)
		}), []string{"model.path: ", "LlamaForCausalLM", `"llama", want "qwen3"`}},
		"too few positions":       {writeModel(t, short, nil), []string{"model.max_context: is 480", "has 399 positions"}},
		"vocabulary is too small": {writeModel(t, small, nil), []string{"model.path: ", "tokenizer.json: ", "the model's vocabulary is 200"}},
		"tokenizer of another format": {writeModel(t, short, func(files map[string][]byte) {
			files[hf.TokenizerFile] = []byte(strings.ReplaceAll(string(files[hf.TokenizerFile]), "<|im_start|>", "<|start|>"))
		}), []string{"has 399 positions", "tokenizer lacks special token <|im_start|>"}},
		"no tokenizer": {"../trainer/hf/testdata/tied", []string{"has 128 positions", "tokenizer.json: no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := fill(t, nil)
			_, err := openRun(t, &activities.Control{Store: store}, run.Input{
				RunID: "x", Config: asString(t, startConfig), Set: map[string]string{"model.path": c.dir},
			})
			wantRefusal(t, err, c.want...)
			if left := dump(t, store); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
	_, err := openRun(t, &activities.Control{Store: fill(t, nil)}, run.Input{
		RunID: "x", Config: asString(t, testConfig), Set: map[string]string{"model.path": writeModel(t, startModel(), nil)},
	})
	wantRefusal(t, err, "model.hidden_size: is 8, but model.path")
}

// wantRefusal checks an error that came through an activity environment.
func wantRefusal(t *testing.T, err error, texts ...string) {
	t.Helper()
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		t.Fatalf("error %v, want one of an application", err)
	}
	for _, text := range texts {
		wantKind(t, app, string(fault.InvalidConfig), text)
	}
}

// TestStartThatIsLost is an error of every activity that needs it.
func TestStartThatIsLost(t *testing.T) {
	h := newStart(t, writeModel(t, startModel(), nil))
	if err := h.store.Delete(context.Background(), h.layout.Dir()+"/start/model.safetensors"); err != nil {
		t.Fatal(err)
	}
	m := boot(h.store, &fate{})
	if _, err := m.TrainSFT(t.Context(), activities.TrainSFTInput{Run: h.run, To: 1}); err == nil || !strings.Contains(err.Error(), "start/model.safetensors") {
		t.Errorf("error %v does not name the weights", err)
	}
}
