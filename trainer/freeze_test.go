package trainer_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
)

func updateBy(t testing.TB, tr *trainer.Trainer, step int, o config.Optimizer) rl.TrainMetrics {
	t.Helper()
	m, err := tr.Update(t.Context(), rl.Batch{Step: step, Samples: samples(5, 40, uint64(step))}, trainer.UpdateOptions{Optimizer: o, Position: constant(step)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestFrozenTensorsStay: frozen tensors keep their bits and have no moments, in
// one pass and in many; the others train as if nothing were frozen, apart from
// the clipping, which sees trained tensors only.
func TestFrozenTensorsStay(t *testing.T) {
	for _, tokens := range []int{1 << 14, 64} {
		cfg := tinyConfig()
		cfg.MicrobatchTokens = tokens
		all, part := initialised(t, cfg), initialised(t, cfg)
		o := adam()
		o.MaxGradNorm = 0
		start := bits(snapshot(t, part))
		full := updateBy(t, all, 1, o)
		o.Freeze = []string{"model.embed_tokens*", "model.layers.0.*"}
		frozen := updateBy(t, part, 1, o)
		if !(frozen.GradNorm < full.GradNorm) {
			t.Errorf("norm %v with frozen tensors, %v without", frozen.GradNorm, full.GradNorm)
		}
		got, want := snapshot(t, part), snapshot(t, all)
		gotBits, wantBits := bits(got), bits(want)
		for _, w := range got.Weights {
			isFrozen := strings.HasPrefix(w.Name, "model.embed_tokens") || strings.HasPrefix(w.Name, "model.layers.0.")
			reference := wantBits
			if isFrozen {
				reference = start
			}
			name := "weight of " + w.Name
			for i := range reference[name] {
				if gotBits[name][i] != reference[name][i] {
					t.Fatalf("%s differs (frozen: %v)", name, isFrozen)
				}
			}
			if _, has := gotBits["first moment of "+w.Name]; has == isFrozen {
				t.Errorf("%s: frozen %v, moments %v", w.Name, isFrozen, has)
			}
		}
	}
}

func TestFreezeMistakeLeavesTheStateAlone(t *testing.T) {
	var problems config.Problems
	tr := initialised(t, tinyConfig())
	o := adam()
	o.Freeze = []string{"embed*"}
	before := snapshot(t, tr)
	if _, err := tr.SFTStep(t.Context(), samples(2, 20, 1), o, constant(1)); !errors.As(err, &problems) {
		t.Errorf("error %v, want Problems", err)
	}
	sameState(t, "after the refusal", snapshot(t, tr), before)
}

// TestFreezeChangesAtResetsOnly: moments of another age would be corrected for
// the wrong number of updates.
func TestFreezeChangesAtResetsOnly(t *testing.T) {
	tr := initialised(t, tinyConfig())
	o := adam()
	o.Freeze = []string{"model.norm.weight"}
	updateBy(t, tr, 1, o)
	state := snapshot(t, tr)
	for want, freeze := range map[string][]string{
		"model.norm.weight is trained but was frozen in the 1 updates before":         nil,
		"model.embed_tokens.weight is frozen but was trained in the 1 updates before": {"model.norm.weight", "model.embed*"},
	} {
		o.Freeze = freeze
		_, err := tr.SFTStep(t.Context(), samples(2, 20, 1), o, constant(2))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		sameState(t, "after the refusal", snapshot(t, tr), state)
	}
	if err := tr.ResetOptimizer(); err != nil {
		t.Fatal(err)
	}
	o.Freeze = nil
	updateBy(t, tr, 2, o)
	if n := len(snapshot(t, tr).FirstMoments); n != len(state.FirstMoments)+1 {
		t.Errorf("%d tensors have moments after the reset, want one more than %d", n, len(state.FirstMoments))
	}
	// Moments come and go with what is restored; graphs must follow them.
	if err := tr.RestoreState(state); err != nil {
		t.Fatal(err)
	}
	o.Freeze = []string{"model.norm.weight"}
	updateBy(t, tr, 2, o)
	other := newTrainer(t, tinyConfig())
	if err := other.RestoreState(state); err != nil {
		t.Fatal(err)
	}
	updateBy(t, other, 2, o)
	sameState(t, "restored over other moments", snapshot(t, tr), snapshot(t, other))
}

// TestDecaySwitches isolates the decay in one update: with and without it the
// weights differ by lr * decay * weight where it applies, and nowhere else.
func TestDecaySwitches(t *testing.T) {
	for _, row := range []struct{ vectors, embeddings bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		plain, decayed := initialised(t, tinyConfig()), initialised(t, tinyConfig())
		o := adam()
		o.WeightDecay, o.DecayVectors, o.DecayEmbeddings = 0, row.vectors, row.embeddings
		start := weights(t, plain)
		updateBy(t, plain, 1, o)
		o.WeightDecay = 0.5
		updateBy(t, decayed, 1, o)
		a, b := weights(t, plain), weights(t, decayed)
		for i, w := range start {
			decay := o.WeightDecay
			if len(w.Shape) == 1 && !row.vectors || w.Name == "model.embed_tokens.weight" && !row.embeddings {
				decay = 0
			}
			for j, x := range w.Data {
				got, want := float64(a[i].Data[j]-b[i].Data[j]), o.LR*decay*float64(x)
				if decay == 0 && got != 0 || math.Abs(got-want) > 2e-7 {
					t.Fatalf("%+v: %s[%d] decays by %v, want %v", row, w.Name, j, got, want)
				}
			}
		}
	}
}

// TestSkippedUpdate: an update above the limit is left out and counted, leaves no
// trace, and the next one is corrected for the updates that were made.
func TestSkippedUpdate(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ tokens, minibatches int }{"fused": {1 << 14, 1}, "many microbatches": {64, 1}, "minibatches": {1 << 14, 3}} {
		t.Run(name, func(t *testing.T) {
			cfg := tinyConfig()
			cfg.MicrobatchTokens = row.tokens
			tr, other := initialised(t, cfg), initialised(t, cfg)
			o := adam()
			updateBy(t, tr, 1, o)
			updateBy(t, other, 1, o)
			before := snapshot(t, tr)
			step := func(tr *trainer.Trainer, skip float64) rl.TrainMetrics {
				o.SkipGradNorm = skip
				m, err := tr.Update(t.Context(), rl.Batch{Step: 2, Samples: samples(6, 40, 2)},
					trainer.UpdateOptions{Optimizer: o, Position: constant(2), NumMinibatches: row.minibatches})
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			m := step(tr, 1e-6)
			if m.SkippedUpdates != row.minibatches || m.Updates != 0 || !(m.GradNorm > 1e-6) {
				t.Errorf("metrics %+v, want every update skipped and the norm that was", m)
			}
			after := snapshot(t, tr)
			after.Counters.Schedule = before.Counters.Schedule // the place in the schedule goes on
			sameState(t, "after a skipped update", after, before)
			m = step(tr, 1e6)
			if m.SkippedUpdates != 0 || m.Updates != row.minibatches {
				t.Errorf("metrics %+v, want no update skipped", m)
			}
			step(other, 0)
			sameState(t, "limit out of reach", snapshot(t, tr), snapshot(t, other))
		})
	}
}

// TestClippingIsExactOverMicrobatches: the norm that clips is that of the whole
// gradient, not of its parts.
func TestClippingIsExactOverMicrobatches(t *testing.T) {
	o := adam()
	o.MaxGradNorm = 0.05
	norm := func(tokens int) (measured, clipped float64) {
		cfg := tinyConfig()
		cfg.MicrobatchTokens = tokens
		tr := initialised(t, cfg)
		measured = updateBy(t, tr, 1, o).GradNorm
		for _, m := range snapshot(t, tr).FirstMoments {
			for _, x := range m.Data {
				g := float64(x) / (1 - o.Beta1)
				clipped += g * g
			}
		}
		return measured, math.Sqrt(clipped)
	}
	whole, _ := norm(1 << 14)
	for _, tokens := range []int{1, 64, 1 << 14} {
		measured, clipped := norm(tokens)
		if math.Abs(measured-whole) > 1e-5 || math.Abs(clipped-o.MaxGradNorm) > 1e-6 || whole < 2*o.MaxGradNorm {
			t.Errorf("%d tokens a pass: norm %v clipped to %v, want %v clipped to %v", tokens, measured, clipped, whole, o.MaxGradNorm)
		}
	}
}
