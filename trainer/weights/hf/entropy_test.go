package hf_test

import (
	"math"
	"testing"

	"temper/trainer/weights/hf"
)

// TestEntropies computes them from the logits in float64, over more rows than are in
// memory at a time.
func TestEntropies(t *testing.T) {
	const temperature = 0.7
	m := load(t, "testdata/tied")
	long := make([]int32, min(300, m.Config.MaxPositionEmbeddings))
	for i := range long {
		long[i] = int32(i * 7 % m.Config.VocabSize)
	}
	sequences := [][]int32{{3}, {1, 2, 3, 4, 5, 6}, long}
	seen := 0
	err := hf.Entropies(m, "go", temperature, sequences, func(i int, entropy, logprob []float32) error {
		seen++
		ids := sequences[i]
		if len(entropy) != len(ids) || len(logprob) != len(ids) || entropy[0] != 0 || logprob[0] != 0 {
			t.Fatalf("sequence %d of %d ids: %d entropies and %d log-probabilities, the first %v and %v", i, len(ids), len(entropy), len(logprob), entropy[0], logprob[0])
		}
		rows, err := m.Logits("go", ids, 0)
		if err != nil {
			return err
		}
		for at := 1; at < len(ids); at++ {
			h, lp := reference(rows[at-1], ids[at], temperature)
			if math.Abs(h-float64(entropy[at])) > 1e-5 || math.Abs(lp-float64(logprob[at])) > 1e-5 {
				t.Fatalf("sequence %d, id %d: entropy %v and log-probability %v, want %v and %v", i, at, entropy[at], logprob[at], h, lp)
			}
		}
		return nil
	})
	if err != nil || seen != 3 {
		t.Fatalf("%d sequences, %v", seen, err)
	}
	if err := hf.Entropies(m, "go", 0, nil, nil); err == nil {
		t.Error("temperature 0 is accepted")
	}
	if err := hf.Entropies(m, "go", 1, [][]int32{{-1}}, nil); err == nil {
		t.Error("id -1 is accepted")
	}
}

func reference(logits []float32, id int32, temperature float64) (entropy, logprob float64) {
	largest, sum := math.Inf(-1), 0.0
	for _, x := range logits {
		largest = max(largest, float64(x)/temperature)
	}
	for _, x := range logits {
		sum += math.Exp(float64(x)/temperature - largest)
	}
	for _, x := range logits {
		lp := float64(x)/temperature - largest - math.Log(sum)
		entropy -= math.Exp(lp) * lp
	}
	return entropy, float64(logits[id])/temperature - largest - math.Log(sum)
}
