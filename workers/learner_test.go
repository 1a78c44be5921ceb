package workers

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/trainer/checkpoint"
	"temper/trainer/device"
)

const switchesConfig = `
name: switches
seed: 5
model: {hidden_size: 16, num_layers: 2, num_heads: 2, num_kv_heads: 1, head_dim: 8, intermediate_size: 24, max_context: 480, initializer_range: 0.1}
tokenizer: {num_merges: 0}
sft: {data: {env: chase, levels: [1], num: 10}, batch_size: 4, steps: 2}
rl: {microbatch_tokens: 1024, problems_per_step: 3, rollouts_per_problem: 4, group_size: 4, num_minibatches: 2}
stages: [{name: first, data: {env: chase, levels: [1], num: 7}, max_response_tokens: 120, max_turns: 3, until: {steps: 1}}]
`

// TestSwitchesTrain makes both kinds of update of a run by its activities and the
// trainer that a worker would give it, once for each switch: all have the loss
// and the gradient of the run without it, as exactly as the switch promises.
func TestSwitchesTrain(t *testing.T) {
	plain := trained(t, nil)
	for name, row := range map[string]struct {
		set    map[string]string
		within float64 // of the figures without the switch, as a part of them
		other  bool    // figures are not the same
	}{
		"remat":       {map[string]string{"model.remat": "true"}, 1e-4, false},
		"packing":     {map[string]string{"rl.pack": "true"}, 1e-4, false},
		"kernels":     {map[string]string{"trainer.kernels": "portable"}, 1e-4, false},
		"bfloat16":    {map[string]string{"model.compute": "bfloat16"}, 0.03, true},
		"all of them": {map[string]string{"model.remat": "true", "rl.pack": "true", "model.compute": "bfloat16", "rl.loss.max_logits": "65536"}, 0.03, true},
	} {
		got, far := trained(t, row.set), 0.0
		for i, want := range plain {
			far = max(far, math.Abs(got[i]/want-1))
		}
		if !(far <= row.within) || row.other && far < 1e-6 {
			t.Errorf("%s: losses and gradient norms are %v, without it %v: %g apart, want at most %g", name, got, plain, far, row.within)
		}
	}
}

// switchesRun stores a run that is ready to train.
func switchesRun(t *testing.T, store blob.Store, set map[string]string) (ref run.Ref, vocab int) {
	t.Helper()
	cfg, err := config.Load("switches.yaml", []byte(switchesConfig), set)
	if err != nil {
		t.Fatal(err)
	}
	text, err := cfg.YAML()
	if err != nil {
		t.Fatal(err)
	}
	ref.RunID = "switches"
	if ref.Config, err = blob.PutBytes(t.Context(), store, artifact.Layout{RunID: ref.RunID}.Config(), text, blob.Always); err != nil {
		t.Fatal(err)
	}
	ready, err := (&activities.Control{Store: store}).PrepareData(t.Context(), activities.PrepareDataInput{Run: ref})
	if err != nil {
		t.Fatal(err)
	}
	return ref, ready.VocabSize
}

// trained is loss and gradient norm of SFT's second update and of the run's step.
func trained(t *testing.T, set map[string]string) []float64 {
	t.Helper()
	store := memblob.New()
	ref, vocab := switchesRun(t, store, set)
	layout := artifact.Layout{RunID: ref.RunID}
	var samples []rl.Sample
	draw := rl.Rand(9)
	for i := range 12 {
		s := rl.Sample{ProblemID: "p", Rollout: i, Advantage: float32(i%3) - 1}
		for p := range 20 + 9*i {
			s.Tokens, s.LossMask = append(s.Tokens, int32(draw.IntN(vocab))), append(s.LossMask, p > 9)
			s.RolloutLogprobs = append(s.RolloutLogprobs, 0)
			if s.LossMask[p] {
				s.RolloutLogprobs[p] = -5
			}
		}
		samples = append(samples, s)
	}
	var group bytes.Buffer
	if err := rl.WriteSamples(&group, samples); err != nil {
		t.Fatal(err)
	}
	inGroup, err := blob.PutBytes(t.Context(), store, layout.Samples(1, "p"), group.Bytes(), blob.Always)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(run.StoredBatch{Step: 1, Groups: []run.GroupRecord{{ProblemID: "p", Samples: inGroup, NumSamples: len(samples)}}})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := blob.PutBytes(t.Context(), store, layout.Batch(1), data, blob.Always)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blob.PutJSON(t.Context(), store, layout.BatchStats(1), run.BuiltBatch{Batch: stored, Samples: len(samples)}, blob.Always); err != nil {
		t.Fatal(err)
	}
	worker := &activities.Trainer{Learner: learner.NewService(learner.Config{Store: store, New: learnerFactory{}.make, Now: time.Now})}
	taught, err := worker.TrainSFT(t.Context(), activities.TrainSFTInput{Run: ref, To: 2, Save: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := worker.TrainStep(t.Context(), activities.TrainStepInput{Run: ref, Step: 1, Batch: stored, Save: true})
	if err != nil {
		t.Fatal(err)
	}
	if out.Metrics.Updates != 2 || out.Metrics.LossTokens == 0 || !(out.Metrics.GradNorm > 0) {
		t.Errorf("%v: metrics %+v, want two updates", set, out.Metrics)
	}
	if p, err := checkpoint.LoadWeights(t.Context(), store, out.Policy.Ref); err != nil || len(p.Weights) == 0 {
		t.Errorf("%v: published %d tensors, error %v", set, len(p.Weights), err)
	}
	return []float64{taught.Metrics.Loss, taught.Metrics.GradNorm, out.Metrics.Loss, out.Metrics.GradNorm}
}

// TestMeshThatDoesNotDivide is a mistake in the configuration, found before the device is
// opened. Without a kind the run would try for ever.
func TestMeshThatDoesNotDivide(t *testing.T) {
	r := run.Loaded{Config: config.Default(), Model: smallModel()}
	_, err := learnerFactory{backend: "xla:cpu", mesh: device.Mesh{Data: 1, Model: 7}}.make(&r)
	if fault.Of(err) != fault.InvalidConfig || !strings.Contains(err.Error(), "num_key_value_heads") || !strings.Contains(err.Error(), "vocab_size") {
		t.Errorf("%v of kind %q, want a refusal that names all dimensions", err, fault.Of(err))
	}
}

// TestKernelsReachTrainerAndEngine: both refuse what a backend does not have, as a
// mistake in the configuration that no retry can mend.
func TestKernelsReachTrainerAndEngine(t *testing.T) {
	r := run.Loaded{Config: config.Default(), Model: smallModel()}
	r.Config.Trainer.Kernels = config.KernelsPortable
	_, learns := learnerFactory{backend: "xla:cpu"}.make(&r)
	_, samples := newEngineFactory(nil, "xla:cpu", 1, discard).make(&r)
	for who, err := range map[string]error{"trainer": learns, "engine": samples} {
		if fault.Of(err) != fault.InvalidConfig || !strings.Contains(err.Error(), "trainer.kernels: ") {
			t.Errorf("%s: %v, want a refusal of trainer.kernels", who, err)
		}
	}
}
