package engine

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/inference"
	"temper/internal/rl"
)

// TestTruncateKeepsWhatEachLimitSays works on (0.05, 0.4, 0.1, 0.25, 0.2).
func TestTruncateKeepsWhatEachLimitSays(t *testing.T) {
	p := []float64{0.05, 0.4, 0.1, 0.25, 0.2}
	logits := make([]float32, len(p))
	for i := range p {
		logits[i] = float32(math.Log(p[i]))
	}
	for _, c := range []struct {
		by   inference.Sampler
		left []int32
	}{
		{inference.Sampler{}, []int32{0, 1, 2, 3, 4}},
		{inference.Sampler{TopK: 2}, []int32{1, 3}},
		{inference.Sampler{TopK: 9}, []int32{0, 1, 2, 3, 4}},
		{inference.Sampler{TopP: 0.39}, []int32{1}},
		{inference.Sampler{TopP: 0.6}, []int32{1, 3}},
		{inference.Sampler{TopP: 0.86}, []int32{1, 2, 3, 4}},
		{inference.Sampler{MinP: 0.45}, []int32{1, 3, 4}},
		{inference.Sampler{MinP: 1}, []int32{1}},
		{inference.Sampler{TopK: 3, TopP: 0.5}, []int32{1, 3}}, // 0.4 / 0.85 is below a half
		{inference.Sampler{TopP: 0.9, MinP: 0.3}, []int32{1, 3, 4}},
	} {
		c.by.KeepIDs = true
		d := truncate(logits, 1, c.by)
		if diff := cmp.Diff(inference.Kept{Count: len(c.left), IDs: c.left}, d.kept(true)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.by, diff)
		}
		counts, total := map[int32]int{}, 0.0
		const draws = 4000
		for i := range draws {
			token, logprob := d.draw(rl.Uniform(7, i), false)
			if counts[token]++; counts[token] == 1 {
				total += math.Exp(float64(logprob))
			}
		}
		if math.Abs(total-1) > 1e-6 || len(counts) != len(c.left) {
			t.Errorf("%+v: %d tokens drawn, whose probabilities sum to %v; want %d and 1", c.by, len(counts), total, len(c.left))
		}
		for _, id := range c.left {
			want := draws * p[id] / (d.total * 0.4) // probabilities are relative to the largest
			if sigma := math.Sqrt(want); math.Abs(float64(counts[id])-want) > 4.5*sigma+1 {
				t.Errorf("%+v: token %d drawn %d times, want about %.0f", c.by, id, counts[id], want)
			}
		}
		if token, _ := d.draw(0.99, true); token != 1 {
			t.Errorf("%+v: greedy token %d, want 1", c.by, token)
		}
	}
}

func TestTruncateKeepsLowIDsOfEquals(t *testing.T) {
	d := truncate(make([]float32, 6), 1, inference.Sampler{TopK: 2})
	if diff := cmp.Diff([]int32{0, 1}, d.kept(true).IDs); diff != "" {
		t.Errorf("of six equal tokens (-want +got):\n%s", diff)
	}
	if token, logprob := d.draw(1-1.0/(1<<24), false); token != 1 || math.Abs(float64(logprob)+math.Ln2) > 1e-6 {
		t.Errorf("largest draw gives token %d with %v, want 1 with -ln 2", token, logprob)
	}
}

func TestLikeliestTokens(t *testing.T) {
	p := []float64{0.05, 0.4, 0.1, 0.25, 0.1, 0.1}
	logits := make([]float32, len(p))
	for i := range p {
		logits[i] = float32(math.Log(p[i]))
	}
	for _, c := range []struct {
		by   inference.Sampler
		n    int
		want []int32
	}{
		{inference.Sampler{}, 1, []int32{1}},
		{inference.Sampler{}, 3, []int32{1, 3, 2}}, // 2, 4 and 5 are equal
		{inference.Sampler{}, 20, []int32{1, 3, 2, 4, 5, 0}},
		{inference.Sampler{TopK: 2}, 3, []int32{1, 3}},
	} {
		d := truncate(logits, 1, c.by)
		var ids []int32
		total := 0.0
		for _, k := range d.left {
			total += p[k.id]
		}
		for _, top := range d.likeliest(c.n, 3, -7) {
			ids = append(ids, top.ID)
			want := math.Log(p[top.ID] / total)
			if top.ID == 3 {
				want = -7 // what the sampled token is reported with
			}
			if math.Abs(float64(top.Logprob)-want) > 1e-6 {
				t.Errorf("%+v: token %d has %v, want %v", c.by, top.ID, top.Logprob, want)
			}
		}
		if diff := cmp.Diff(c.want, ids); diff != "" {
			t.Errorf("%d likeliest of %+v (-want +got):\n%s", c.n, c.by, diff)
		}
	}
}
