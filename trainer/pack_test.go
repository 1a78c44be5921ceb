package trainer_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
	"temper/trainer"
	"temper/trainer/checkpoint"
)

func packedConfig() trainer.Config {
	cfg := tinyConfig()
	cfg.Pack = true
	return cfg
}

// TestPackedEqualsUnpacked compares samples that share rows with samples that
// have a row each: log-probabilities, and the loss, the measures and the
// gradients of an update.
func TestPackedEqualsUnpacked(t *testing.T) {
	t.Parallel()
	for _, tokens := range []int{128, 1 << 14} {
		s := samples(13, 90, 11)
		plain, cfg := initialised(t, tinyConfig()), packedConfig()
		cfg.MicrobatchTokens = tokens
		tight := initialised(t, cfg)
		want, errA := plain.Logprobs(t.Context(), s)
		got, errB := tight.Logprobs(t.Context(), s)
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d tokens: log-probabilities differ in their bits:\n%s", tokens, diff)
		}
		a, b := update(t, plain, 1, s, 1), update(t, tight, 1, s, 1)
		if math.Abs(a.Loss-b.Loss) > 1e-6 || math.Abs(a.GradNorm-b.GradNorm) > 1e-6*a.GradNorm || math.Abs(a.Entropy-b.Entropy) > 1e-6*a.Entropy {
			t.Errorf("%d tokens: packed %+v, unpacked %+v", tokens, b, a)
		}
		x, errA := plain.Snapshot(checkpoint.State{})
		y, errB := tight.Snapshot(checkpoint.State{})
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if d := distance(x.FirstMoments, y.FirstMoments); d > 1e-8 {
			t.Errorf("%d tokens: gradients differ by %v", tokens, d)
		}
	}
}

// TestPackedSequencesKeepTheirMeans: objectives over sequences must not mix
// those that share a row.
func TestPackedSequencesKeepTheirMeans(t *testing.T) {
	cfg := tinyConfig()
	cfg.Loss.Aggregation, cfg.Loss.Objective = config.AggregateSequences, config.ObjectiveGSPO
	s := samples(9, 60, 12)
	plain := initialised(t, cfg)
	cfg.Pack = true
	tight := initialised(t, cfg)
	for step := 1; step <= 2; step++ { // two minibatches, so that ratios are not all 1
		a, b := update(t, plain, step, s, 2), update(t, tight, step, s, 2)
		if math.Abs(a.Loss-b.Loss) > 1e-5 || math.Abs(a.GradNorm-b.GradNorm) > 1e-4*a.GradNorm || math.Abs(a.PPOKL-b.PPOKL) > 1e-5 {
			t.Errorf("step %d: packed %+v, unpacked %+v", step, b, a)
		}
	}
}

// TestPackedLongRowsAgree goes beyond one panel of the CPU backend's products,
// where the order of sums may differ.
func TestPackedLongRowsAgree(t *testing.T) {
	t.Parallel()
	cfg := tinyConfig()
	cfg.Model.MaxPositionEmbeddings, cfg.Model.NumHiddenLayers = 1024, 1
	s := samples(5, 700, 13)
	s = append(s, samples(6, 90, 14)...)
	plain := initialised(t, cfg)
	cfg.Pack = true
	tight := initialised(t, cfg)
	want, errA := plain.Logprobs(t.Context(), s)
	got, errB := tight.Logprobs(t.Context(), s)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		for p := range want[i] {
			if d := math.Abs(float64(got[i][p] - want[i][p])); d > 1e-6*math.Max(1, math.Abs(float64(want[i][p]))) {
				t.Fatalf("sample %d, token %d: %v packed, %v alone", i, p, got[i][p], want[i][p])
			}
		}
	}
}
