package trainer_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
)

// refused makes an update that must be refused, looks that no bit of the state
// changed, and returns the error.
func refused(t *testing.T, tr *trainer.Trainer, s []rl.Sample, minibatches int) (*trainer.DivergedError, error) {
	t.Helper()
	before := snapshot(t, tr)
	_, err := tr.Update(t.Context(), rl.Batch{Step: 2, Samples: s},
		trainer.UpdateOptions{Optimizer: adam(), Position: constant(2), NumMinibatches: minibatches})
	var diverged *trainer.DivergedError
	if !errors.Is(err, trainer.ErrDiverged) || !errors.As(err, &diverged) {
		t.Fatalf("error %v, want a DivergedError", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error of several lines: %v", err)
	}
	sameState(t, "after the refusal", snapshot(t, tr), before)
	return diverged, err
}

// TestRefusedUpdateNamesTheSample: one sample of many overflows, in one fused
// device call, over many passes, and in the last of several updates of a step.
func TestRefusedUpdateNamesTheSample(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		tokens, minibatches int
		advantage           float32
		want                string
	}{
		"loss, fused":       {1 << 14, 1, 3e38, "the loss overflows before the gradient does"},
		"loss, in parts":    {32, 1, 3e38, "the loss overflows before the gradient does"},
		"norm, fused":       {1 << 14, 1, 3e30, "whose square overflows, largest in "},
		"norm, in parts":    {32, 1, 3e30, "whose square overflows, largest in "},
		"norm, minibatches": {1 << 14, 3, 3e30, "whose square overflows, largest in "},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := tinyConfig()
			cfg.MicrobatchTokens = row.tokens
			tr := initialised(t, cfg)
			update(t, tr, 1, samples(6, 40, 3), 1)
			s := cut(samples(9, 40, 4), 17) // of one length, which makes one pass
			s[5].Advantage = row.advantage
			diverged, err := refused(t, tr, s, row.minibatches)
			for _, want := range []string{"update of step 2: training diverged: loss ", row.want, " from sample 5 (p/5)"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q", err, want)
				}
			}
			r := diverged.Report
			if r.Incomplete != "" || r.Step != 2 || r.Objective != "grpo" || r.LR != 0.01 {
				t.Errorf("report of step %d of %s at %v, incomplete: %q", r.Step, r.Objective, r.LR, r.Incomplete)
			}
			bad, seen := 0, 0
			for _, p := range r.Passes {
				for _, s := range p.Samples {
					seen++
					if s.Index == 5 {
						bad++
					}
				}
			}
			if want := 9 / row.minibatches; bad != 1 || seen != want {
				t.Errorf("%d samples in the passes, the bad one %d times; want %d and once", seen, bad, want)
			}
			if len(r.Tensors) != len(weights(t, tr)) {
				t.Errorf("%d tensors in the report", len(r.Tensors))
			}
			update(t, tr, 2, samples(6, 40, 3), 1) // goes on as if nothing had been
		})
	}
}

// TestRefusedUpdateNamesTheMetric: a metric that is not finite refuses an update
// whose loss and gradient are. Here it is the mismatch with the engine, of one token
// that the engine has given no number.
func TestRefusedUpdateNamesTheMetric(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		tokens, minibatches int
		logprob             float64
	}{
		"infinite, fused":       {1 << 14, 1, math.Inf(-1)},
		"infinite, in parts":    {32, 1, math.Inf(-1)},
		"infinite, minibatches": {1 << 14, 3, math.Inf(-1)},
		"NaN, fused":            {1 << 14, 1, math.NaN()},
		"NaN, in parts":         {32, 1, math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := tinyConfig()
			cfg.MicrobatchTokens = row.tokens
			tr := initialised(t, cfg)
			update(t, tr, 1, samples(6, 40, 3), 1)
			s := cut(samples(9, 40, 4), 17)
			for p, in := range s[5].LossMask {
				if in {
					s[5].RolloutLogprobs[p] = float32(row.logprob)
					break
				}
			}
			diverged, err := refused(t, tr, s, row.minibatches)
			const metric = "rollout_diff"
			if want := "the metric " + metric + " is not finite from sample 5 (p/5)"; !strings.HasSuffix(err.Error(), want) {
				t.Errorf("error %q, want %q at its end", err, want)
			}
			if r := diverged.Report; r.Metric != metric || math.IsNaN(float64(r.Loss)) || math.IsInf(float64(r.Loss), 0) {
				t.Errorf("metric %q with loss %v, want %q with a finite loss", r.Metric, r.Loss, metric)
			}
			update(t, tr, 2, samples(6, 40, 3), 1) // goes on as if nothing had been
		})
	}
}

// TestRefusedUpdateNamesTheWeight: a state that holds NaN is named and kept, NaN included.
func TestRefusedUpdateNamesTheWeight(t *testing.T) {
	for _, tokens := range []int{1 << 14, 32} {
		cfg := tinyConfig()
		cfg.MicrobatchTokens = tokens
		tr := initialised(t, cfg)
		w := weights(t, tr)
		for i := range w {
			if w[i].Name == "model.layers.1.mlp.up_proj.weight" {
				w[i].Data[7], w[i].Data[9] = float32(math.NaN()), float32(math.Inf(-1))
			}
		}
		if err := tr.Import(w); err != nil {
			t.Fatal(err)
		}
		diverged, _ := refused(t, tr, samples(6, 40, 4), 1)
		if want := "the weight is not finite in model.layers.1.mlp.up_proj.weight"; diverged.Report.Cause != want {
			t.Errorf("cause %q, want %q", diverged.Report.Cause, want)
		}
		for _, x := range diverged.Report.Tensors {
			if want := 2; x.Name == diverged.Report.Tensor && x.WeightNotFinite != want {
				t.Errorf("%d values of %s are not finite, want %d", x.WeightNotFinite, x.Name, want)
			}
		}
	}
}

// TestRefusedUpdateNamesTheGradient: the last norm makes the gradient overflow
// behind it, and what the backward pass reaches first is named.
func TestRefusedUpdateNamesTheGradient(t *testing.T) {
	tr := initialised(t, tinyConfig())
	s := []rl.Sample{{Tokens: []int32{1, 2, 3, 4}, LossMask: []bool{false, false, false, true}, Advantage: 3e38}}
	w := weights(t, tr)
	for i := range w {
		if w[i].Name == "model.norm.weight" {
			for j := range w[i].Data {
				w[i].Data[j] = 1000
			}
		}
	}
	if err := tr.Import(w); err != nil {
		t.Fatal(err)
	}
	diverged, _ := refused(t, tr, s, 1)
	r := diverged.Report
	if !strings.HasPrefix(r.Cause, "the gradient is first not finite in model.layers.1.mlp.down_proj.weight from sample 0 ") {
		t.Errorf("cause %q, tensor %q", r.Cause, r.Tensor)
	}
	after := false
	for _, x := range r.Tensors {
		if after && x.GradientNotFinite > 0 {
			t.Errorf("%s, behind %s in the network, is not finite either", x.Name, r.Tensor)
		}
		after = after || x.Name == r.Tensor
	}
}

func TestDivergenceIsStored(t *testing.T) {
	store := memblob.New()
	tr := initialised(t, tinyConfig())
	s := samples(4, 40, 4)
	s[2].Advantage = 3e38
	diverged, _ := refused(t, tr, s, 1)
	const key = "runs/a/diverged/000002.json"
	if where, err := diverged.Save(t.Context(), store, key); err != nil || where != store.Locate(key) {
		t.Fatalf("stored at %q, error %v", where, err)
	}
	var got struct {
		Cause   string
		Samples []struct {
			ProblemID string `json:"problem_id"`
			Loss      any
		}
		Counters checkpoint.Counters
	}
	if err := blob.ReadJSON(t.Context(), store, key, &got); err != nil {
		t.Fatal(err)
	}
	if got.Cause != diverged.Report.Cause || len(got.Samples) != len(diverged.Report.Samples) || got.Samples[0].ProblemID != "p" {
		t.Errorf("stored %+v", got)
	}
	for i, sample := range diverged.Report.Samples {
		if x := float64(*sample.Loss); !math.IsNaN(x) && !math.IsInf(x, 0) {
			if got.Samples[i].Loss != x {
				t.Errorf("sample %d: loss %v stored, want %v", i, got.Samples[i].Loss, x)
			}
			continue
		}
		if _, isText := got.Samples[i].Loss.(string); !isText || sample.Index != 2 {
			t.Errorf("sample %d: loss %v stored, want text", i, got.Samples[i].Loss)
		}
	}
	// No text of the model, which is its tokens: ids and counts only.
	raw, readErr := json.Marshal(diverged.Report)
	if readErr != nil || strings.Contains(string(raw), "\"tokens\":[") {
		t.Errorf("report holds tokens: %s, error %v", raw, readErr)
	}
}
