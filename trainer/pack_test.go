package trainer_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/trainer"
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
		x, errA := plain.Snapshot()
		y, errB := tight.Snapshot()
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if d := distance(x.FirstMoments, y.FirstMoments); d > 1e-8 {
			t.Errorf("%d tokens: gradients differ by %v", tokens, d)
		}
	}
}
