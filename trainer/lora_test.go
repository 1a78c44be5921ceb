package trainer_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
	"temper/trainer/weights/hf"
	"temper/trainer/weights/safetensors"
	"temper/trainer/weights/tensor"
)

func withLoRA(t testing.TB, cfg trainer.Config, targets ...string) trainer.Config {
	t.Helper()
	var err error
	if cfg.Model.LoRA, err = model.NewLoRA(4, 6, targets); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestAdaptersTrainAlone: with adapters the weights keep their bits and have no moments,
// in one pass and in many; the policy that is published has the adapters in it, and the
// bits of its log-probabilities are those of the trainer.
func TestAdaptersTrainAlone(t *testing.T) {
	for _, tokens := range []int{1 << 14, 64} {
		base := tinyConfig()
		base.MicrobatchTokens = tokens
		cfg := withLoRA(t, base)
		plain, adapted := initialised(t, base), newTrainer(t, cfg)
		weights, err := plain.Weights()
		if err != nil {
			t.Fatal(err)
		}
		if err := adapted.Import(weights); err != nil {
			t.Fatal(err)
		}
		probe := samples(3, 40, 9)
		sameLogprobs(t, "before the first update", adapted, plain, probe)
		start := bits(snapshot(t, adapted))
		for step := 1; step <= 3; step++ {
			updateBy(t, adapted, step, adam())
		}
		end := snapshot(t, adapted)
		if want := len(cfg.Model.Adapters()); len(end.FirstMoments) != want || want != 2*2*7 {
			t.Errorf("%d tensors have moments, want %d", len(end.FirstMoments), want)
		}
		endBits := bits(end)
		for _, w := range end.Weights {
			name, same := "weight of "+w.Name, true
			for i, b := range start[name] {
				same = same && b == endBits[name][i]
			}
			if same == strings.Contains(w.Name, ".lora_") {
				t.Errorf("%s: unchanged is %v", name, same)
			}
		}
		store := memblob.New()
		ref, err := adapted.Publish(t.Context(), store, "policies/1", checkpoint.Policy{})
		if err != nil {
			t.Fatal(err)
		}
		policy, err := checkpoint.LoadWeights(t.Context(), store, ref)
		if err != nil {
			t.Fatal(err)
		}
		if policy.Model != base.Model {
			t.Errorf("published as %+v", policy.Model)
		}
		merged := newTrainer(t, base)
		if err := merged.Import(policy.Weights); err != nil {
			t.Fatal(err)
		}
		sameLogprobs(t, "published", merged, adapted, probe)
		onHost, err := model.Merge(cfg.Model, end.Weights)
		if err != nil {
			t.Fatal(err)
		}
		published := tensor.ByName(policy.Weights)
		for _, w := range onHost {
			p, _ := published(w.Name)
			for i := range w.Data {
				if math.Abs(float64(w.Data[i]-p.Data[i])) > 1e-6 {
					t.Fatalf("%s: %v merged on the host, %v published", w.Name, w.Data[i], p.Data[i])
				}
			}
		}
	}
}

func sameLogprobs(t *testing.T, when string, a, b *trainer.Trainer, probe []rl.Sample) {
	t.Helper()
	x, err := a.Logprobs(t.Context(), probe)
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.Logprobs(t.Context(), probe)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x {
		for j := range x[i] {
			if math.Float32bits(x[i][j]) != math.Float32bits(y[i][j]) {
				t.Fatalf("%s: sample %d, token %d: %v and %v", when, i, j, x[i][j], y[i][j])
			}
		}
	}
}

// TestAdaptersComeBack: a checkpoint with adapters goes on with the same bits.
func TestAdaptersComeBack(t *testing.T) {
	cfg := withLoRA(t, tinyConfig(), "v_proj", "q_proj")
	if got := cfg.Model.LoRA.Targets; got != "q_proj,v_proj" {
		t.Errorf("targets %q", got)
	}
	tr, store := initialised(t, cfg), memblob.New()
	updateBy(t, tr, 1, adam())
	ref, err := tr.Save(t.Context(), store, "run", 1)
	if err != nil {
		t.Fatal(err)
	}
	updateBy(t, tr, 2, adam())
	again := newTrainer(t, cfg)
	if _, err := again.Restore(t.Context(), store, ref); err != nil {
		t.Fatal(err)
	}
	updateBy(t, again, 2, adam())
	sameState(t, "after a restore", snapshot(t, again), snapshot(t, tr))
	other := newTrainer(t, withLoRA(t, tinyConfig()))
	if _, err := other.Restore(t.Context(), store, ref); err == nil {
		t.Error("adapters of other weights were restored")
	}
}

// TestGradientOfAdapters compares the first moments after an update with those of the
// weights themselves: the gradient of B is alpha/r dW A^T, and that of A is zero as long as B
// is.
func TestGradientOfAdapters(t *testing.T) {
	base := tinyConfig()
	cfg := withLoRA(t, base)
	plain, adapted := initialised(t, base), initialised(t, cfg)
	o := adam()
	o.MaxGradNorm = 0
	updateBy(t, plain, 1, o)
	start := tensor.ByName(snapshot(t, adapted).Weights)
	updateBy(t, adapted, 1, o)
	full, part := tensor.ByName(snapshot(t, plain).FirstMoments), tensor.ByName(snapshot(t, adapted).FirstMoments)
	const rank, scale = 4, 6.0 / 4
	for _, spec := range base.Model.Tensors() {
		nameA, nameB, _ := cfg.Model.AdaptersOf(spec.Name)
		if nameA == "" {
			continue
		}
		w, _ := full(spec.Name)
		a, _ := start(nameA)
		gotA, _ := part(nameA)
		gotB, _ := part(nameB)
		in := spec.Shape[1]
		for i, x := range gotA.Data {
			if x != 0 {
				t.Fatalf("%s[%d]: gradient %v beside a B of zeros", nameA, i, x)
			}
		}
		for row := range spec.Shape[0] {
			for r := range rank {
				want := 0.0
				for i := range in {
					want += scale * float64(w.Data[row*in+i]) * float64(a.Data[r*in+i])
				}
				if got := float64(gotB.Data[row*rank+r]); math.Abs(got-want) > 1e-6+1e-4*math.Abs(want) {
					t.Fatalf("%s[%d,%d]: %v, want %v", nameB, row, r, got, want)
				}
			}
		}
	}
}

func TestMistakesOfLoRA(t *testing.T) {
	if _, err := model.NewLoRA(0, 0, []string{"q_proj", "lm_head"}); err == nil ||
		!strings.Contains(err.Error(), `"lm_head", want some of q_proj`) || !strings.Contains(err.Error(), "rank: 0") || !strings.Contains(err.Error(), "alpha: 0") {
		t.Errorf("error %v", err)
	}
	tr := initialised(t, withLoRA(t, tinyConfig()))
	o := adam()
	o.Freeze = []string{"model.norm.weight"}
	var problems config.Problems
	if _, err := tr.SFTStep(t.Context(), samples(2, 20, 1), o, constant(1)); !errors.As(err, &problems) || !strings.Contains(err.Error(), "trainer.lora") {
		t.Errorf("freeze beside adapters: %v", err)
	}
}

// TestTargetsOfLoRA: the configuration and the network name the same projections.
func TestTargetsOfLoRA(t *testing.T) {
	if got, want := strings.Join(model.LoRATargets(), " "), strings.Join(config.LoRATargets(), " "); got != want {
		t.Errorf("network %s, configuration %s", got, want)
	}
}

// lessons are the rows of a step of the comparison with PEFT.
func lessons(step int) []rl.Sample {
	out := make([]rl.Sample, 4)
	for i := range out {
		s := rl.Sample{ProblemID: "p", Rollout: i, Tokens: make([]int32, 24), LossMask: make([]bool, 24), RolloutLogprobs: make([]float32, 24)}
		for at := range s.Tokens {
			s.Tokens[at], s.LossMask[at] = int32((7*at+i*13+step*5+at*at*i)%64), at > 0
		}
		out[i] = s
	}
	return out
}

// TestLoRAFollowsPEFT: twenty supervised updates give the losses and adapters of PEFT with
// PyTorch's AdamW, from the same adapters; see testdata/lora.py. With TEMPER_LORA_OUT the
// adapters to begin with are written there for the script.
func TestLoRAFollowsPEFT(t *testing.T) {
	dir := filepath.Join("weights", "hf", "testdata", "tied")
	m, err := hf.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var weights []model.Tensor
	for w, err := range m.All() {
		if err != nil {
			t.Fatal(err)
		}
		weights = append(weights, w)
	}
	cfg := tinyConfig()
	cfg.Model = m.Config.Config
	cfg = withLoRA(t, cfg)
	tr := newTrainer(t, cfg)
	if err := tr.Import(weights); err != nil {
		t.Fatal(err)
	}
	if out := os.Getenv("TEMPER_LORA_OUT"); out != "" {
		if err := hf.CreateAdapter(out, cfg.Model, dir, model.ByName(snapshot(t, tr).Weights), safetensors.F32); err != nil {
			t.Fatal(err)
		}
		t.Skip("adapters written to " + out)
	}
	data, err := os.ReadFile(filepath.Join("testdata", "lora.golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Losses   []float64            `json:"losses"`
		Adapters map[string][]float64 `json:"adapters"`
	}
	if err := json.Unmarshal(data, &golden); err != nil || len(golden.Losses) != 20 || len(golden.Adapters) < 4 {
		t.Fatalf("%d losses, %d adapters: %v", len(golden.Losses), len(golden.Adapters), err)
	}
	o := config.Optimizer{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.01, Schedule: "constant"}
	for step, want := range golden.Losses {
		got, err := tr.SFTStep(t.Context(), lessons(step), o, constant(step+1))
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Loss-want) > 1e-5 {
			t.Errorf("step %d: loss %v, PEFT %v", step, got.Loss, want)
		}
	}
	final := tensor.ByName(snapshot(t, tr).Weights)
	for name, want := range golden.Adapters {
		got, _ := final(name)
		if len(got.Data) != len(want) {
			t.Fatalf("%s: %d values, want %d", name, len(got.Data), len(want))
		}
		for i := range want {
			if math.Abs(float64(got.Data[i])-want[i]) > 1e-5 {
				t.Fatalf("%s[%d]: %v, PEFT %v", name, i, got.Data[i], want[i])
			}
		}
	}
}
