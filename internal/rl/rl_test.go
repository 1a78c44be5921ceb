package rl_test

import (
	"math"
	"testing"

	"temper/internal/rl"
)

// Stored runs depend on these numbers: a change makes every run another one.
func TestDrawsArePinned(t *testing.T) {
	seed := rl.Seed(1, "rollout/train", 2, 3, rl.Hash("chase2-0000"), 4)
	if want := uint64(0xccb87a756c4e2847); seed != want {
		t.Errorf("seed is %#x, want %#x", seed, want)
	}
	if got, want := rl.Uniform(seed, 17), float32(0.45558894); math.Abs(float64(got-want)) > 1e-7 {
		t.Errorf("uniform is %v, want %v", got, want)
	}
}

func TestSeedsOfDifferentPathsDiffer(t *testing.T) {
	seen := map[uint64]string{}
	for run := range uint64(3) {
		for _, purpose := range []string{"a", "b"} {
			for i := range uint64(20) {
				for j := range uint64(20) {
					s := rl.Seed(run, purpose, i, j)
					if other, twice := seen[s]; twice {
						t.Fatalf("seed of %d/%s/%d/%d is that of %s", run, purpose, i, j, other)
					}
					seen[s] = purpose
				}
			}
		}
	}
}

// The draws of neighbouring positions and seeds are uniform and unrelated.
func TestUniformIsUniform(t *testing.T) {
	const n = 20000
	var buckets [10]int
	var product float64
	for i := range n {
		u, v := rl.Uniform(7, i), rl.Uniform(7, i+1)
		w := rl.Uniform(uint64(i), 3)
		if u < 0 || u >= 1 || w < 0 || w >= 1 {
			t.Fatalf("draw %v or %v is outside [0, 1)", u, w)
		}
		buckets[int(w*10)]++
		product += (float64(u) - 0.5) * (float64(v) - 0.5)
	}
	for b, count := range buckets { // standard deviation 42
		if count < n/10-250 || count > n/10+250 {
			t.Errorf("bucket %d has %d of %d draws", b, count, n)
		}
	}
	if correlation := 12 * product / n; math.Abs(correlation) > 0.05 { // standard deviation 0.007
		t.Errorf("neighbouring positions correlate by %.3f", correlation)
	}
}

func TestValidateNamesWhatIsBroken(t *testing.T) {
	good := rl.Trajectory{
		Tokens: []int32{1, 2, 3}, PromptTokens: 1, LossMask: []bool{false, true, true}, RolloutLogprobs: []float32{0, -1, -1},
	}
	if err := good.Validate(); err != nil {
		t.Errorf("good record: %v", err)
	}
	for name, spoil := range map[string]func(*rl.Trajectory){
		"short mask":       func(t *rl.Trajectory) { t.LossMask = t.LossMask[1:] },
		"prompt in loss":   func(t *rl.Trajectory) { t.LossMask = []bool{true, true, true} },
		"prompt too long":  func(t *rl.Trajectory) { t.PromptTokens = 4 },
		"missing logprobs": func(t *rl.Trajectory) { t.RolloutLogprobs = nil },
	} {
		bad := good
		spoil(&bad)
		if bad.Validate() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
