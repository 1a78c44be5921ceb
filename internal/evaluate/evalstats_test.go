package evaluate_test

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"temper/internal/evaluate"
)

// draw makes problems whose samples are right with a rate of their own, and otherwise
// give one of a few wrong answers or none.
func draw(rng *rand.Rand, problems, samples int, rate func(*rand.Rand) float64) []evaluate.Problem {
	var out []evaluate.Problem
	for i := range problems {
		p, r := evaluate.Problem{ID: fmt.Sprint(i)}, rate(rng)
		for range samples {
			ok := rng.Float64() < r
			answer := []string{"", "1", "2", "3"}[rng.IntN(4)]
			if ok {
				answer = "right"
			}
			p.Correct, p.Answers = append(p.Correct, ok), append(p.Answers, answer)
		}
		out = append(out, p)
	}
	return out
}

// subsets calls do with each choice of k indices below n.
func subsets(n, k int, do func([]int)) {
	for mask := range uint(1) << n {
		if bits.OnesCount(mask) != k {
			continue
		}
		var at []int
		for i := range n {
			if mask>>i&1 == 1 {
				at = append(at, i)
			}
		}
		do(at)
	}
}

// TestAgainstBruteForce counts every subset of k samples, of 16 too.
func TestAgainstBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for n, problems := range map[int]int{1: 12, 5: 12, 10: 12, 16: 4} {
		ps := draw(rng, problems, n, func(r *rand.Rand) float64 { return r.Float64() })
		for k := 1; k <= n; k++ {
			var pass, majority, average float64
			for _, p := range ps {
				var hits, won, right, all float64
				subsets(n, k, func(at []int) {
					all++
					votes, any := map[string]int{}, false
					for _, i := range at {
						any = any || p.Correct[i]
						if p.Answers[i] != "" {
							votes[p.Answers[i]]++
						}
					}
					if any {
						hits++
					}
					most, tied := 0, 0
					for _, v := range votes {
						most = max(most, v)
					}
					for _, v := range votes {
						if v == most {
							tied++
						}
					}
					if most > 0 && votes["right"] == most {
						won += 1 / float64(tied)
					}
				})
				for _, ok := range p.Correct {
					if ok {
						right++
					}
				}
				share := 1 / float64(problems)
				pass, majority, average = pass+share*hits/all, majority+share*won/all, average+share*right/float64(n)
			}
			gotPass, err := evaluate.PassAt(ps, k)
			gotMajority, err2 := evaluate.MajorityAt(ps, k)
			if err != nil || err2 != nil || math.Abs(gotPass.Value-pass) > 1e-12 || math.Abs(gotMajority.Value-majority) > 1e-12 {
				t.Errorf("n %d, k %d: pass %v, want %v; majority %v, want %v (%v, %v)", n, k, gotPass.Value, pass, gotMajority.Value, majority, err, err2)
			}
			if got := evaluate.Average(ps); math.Abs(got.Value-average) > 1e-12 {
				t.Errorf("n %d: average %v, want %v", n, got.Value, average)
			}
		}
	}
}

// TestManyAnswers: the work of maj@k is bounded where each wrong sample has an answer of its
// own, of which two right ones beat any.
func TestManyAnswers(t *testing.T) {
	const samples, k = 256, 128
	p := evaluate.Problem{ID: "a"}
	for i := range samples {
		p.Correct, p.Answers = append(p.Correct, i%2 == 0), append(p.Answers, fmt.Sprint(i))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := evaluate.MajorityAt([]evaluate.Problem{p}, k)
	runtime.ReadMemStats(&after)
	if err != nil || got.Value < 1-1e-12 || got.Value > 1+1e-12 {
		t.Errorf("%+v, %v; want 1: nearly all draws have two right samples", got, err)
	}
	if made := after.TotalAlloc - before.TotalAlloc; made > 64<<20 {
		t.Errorf("%d MiB of ways were counted, want at most 64", made>>20)
	}
}

// TestTooFewSamples is an error, and no number.
func TestTooFewSamples(t *testing.T) {
	ps := []evaluate.Problem{{ID: "a", Correct: []bool{true}, Answers: []string{"1"}}}
	if _, err := evaluate.PassAt(ps, 2); err == nil {
		t.Error("pass@2 of one sample")
	}
	if _, err := evaluate.MajorityAt(ps, 0); err == nil {
		t.Error("maj@0")
	}
}

// TestIntervalsCover the mean over all problems of their kind in 93 to 97 of 100
// evaluations, for the sizes of the usual benchmarks.
func TestIntervalsCover(t *testing.T) {
	uniform := func(r *rand.Rand) float64 { return r.Float64() }
	hard := func(r *rand.Rand) float64 { return math.Pow(r.Float64(), 3) } // mean 1/4
	easy := func(r *rand.Rand) float64 { return 1 - math.Pow(r.Float64(), 3) }
	split := func(r *rand.Rand) float64 { // what a policy can do, it nearly always does
		if r.Float64() < 0.7 {
			return 0.95
		}
		return 0.05
	}
	for name, c := range map[string]struct {
		problems, samples int
		rate              func(*rand.Rand) float64
		truth             float64
	}{
		"aime":     {30, 16, uniform, 0.5},
		"aime x2":  {60, 16, hard, 0.25},
		"hmmt":     {30, 16, split, 0.68},
		"math 500": {500, 4, easy, 0.75},
		"greedy":   {198, 1, uniform, 0.5},
	} {
		const evaluations = 1000
		rng, covered := rand.New(rand.NewPCG(5, 6)), 0
		for range evaluations {
			e := evaluate.Average(draw(rng, c.problems, c.samples, c.rate))
			if e.Low <= c.truth && c.truth <= e.High {
				covered++
			}
		}
		if covered < 930 || covered > 970 {
			t.Errorf("%s: %d of %d intervals cover the truth, want 930 to 970", name, covered, evaluations)
		}
	}
}

// TestEqualScores: as many right answers as problems prove no certainty. The interval is
// Wilson's for as many trials as there are problems, whatever rounding leaves of their spread.
func TestEqualScores(t *testing.T) {
	for n := 2; n <= 1000; n++ {
		for _, score := range []float64{0, 0.25, 1.0 / 3, 0.7, 0.75, 1} {
			scores := slices.Repeat([]float64{score}, n)
			scores[0] += 1e-15 * (0.5 - score) // another way to compute it
			e := evaluate.Mean(scores)
			// Half of the interval is at least 1/n wide, and Wilson's never wider than 2q/sqrt(n).
			if width := e.High - e.Low; width < 1/float64(n) || n > 30 && width > 4.2/math.Sqrt(float64(n)) || math.Abs(e.Value-score) > 1e-12 {
				t.Fatalf("%d problems, all %.3f: %.8f (%.8f to %.8f)", n, score, e.Value, e.Low, e.High)
			}
		}
		all := evaluate.Mean(slices.Repeat([]float64{1}, n))
		if all.Value != 1 || all.High != 1 {
			t.Fatalf("%d of %d right: %+v", n, n, all)
		}
	}
	// n/(n+q*q), for the quantiles 2.2622 and 1.9679 of Student's distribution.
	for n, low := range map[int]float64{10: 0.66148, 300: 0.98726} {
		if e := evaluate.Mean(slices.Repeat([]float64{1}, n)); math.Abs(e.Low-low) > 1e-4 {
			t.Errorf("%d of %d right: at least %.5f, want %.5f", n, n, e.Low, low)
		}
	}
}

// TestCompare: the randomization test finds a difference that is there, tells none from
// noise, and does not depend on the order.
func TestCompare(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	weak := draw(rng, 60, 8, func(r *rand.Rand) float64 { return 0.4 })
	strong := draw(rng, 60, 8, func(r *rand.Rand) float64 { return 0.7 })
	got := evaluate.ComparePaired(weak, strong)
	if got.P > 0.001 || got.Low <= 0.1 || got.High >= 0.5 || got.Problems != 60 {
		t.Errorf("0.4 against 0.7: %+v", got)
	}
	slices.Reverse(weak)
	if again := evaluate.ComparePaired(weak, strong); again != got {
		t.Errorf("another order: %+v, want %+v", again, got)
	}
	other := draw(rng, 60, 8, func(r *rand.Rand) float64 { return 0.4 })
	if got = evaluate.ComparePaired(weak, other); got.P < 0.01 {
		t.Errorf("the same rate: %+v", got)
	}
	few := []evaluate.Problem{{ID: "1", Correct: []bool{true}}, {ID: "2", Correct: []bool{true}}, {ID: "elsewhere", Correct: []bool{true}}}
	none := []evaluate.Problem{{ID: "1", Correct: []bool{false}}, {ID: "2", Correct: []bool{false}}}
	if got = evaluate.ComparePaired(none, few); got.P != 0.5 || got.Value != 1 || got.Better != 2 || got.Problems != 2 {
		t.Errorf("two problems: %+v, want p 2 of 4", got)
	}
}
