package grpo_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"temper/internal/grpo"
	"temper/internal/rl"
)

// build returns the samples of a group with these rewards, in their order.
func build(t testing.TB, cfg grpo.Config, rewards ...float64) grpo.Built {
	t.Helper()
	g := rl.Group{Problem: rl.Problem{ID: "p"}}
	for i, r := range rewards {
		tr := made("p", i, r)
		for range i % 3 { // of different lengths
			tr.Tokens, tr.LossMask, tr.RolloutLogprobs = append(tr.Tokens, 4), append(tr.LossMask, true), append(tr.RolloutLogprobs, -1)
		}
		g.Trajectories = append(g.Trajectories, tr)
	}
	cfg.GroupSize = len(rewards)
	out, err := grpo.BuildGroup(g, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func advantagesOf(b grpo.Built) (out []float64) {
	for _, s := range b.Samples {
		out = append(out, float64(s.Advantage))
	}
	return out
}

func near(got, want []float64) bool {
	return slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) <= 1e-5*max(1, math.Abs(b)) })
}

// TestEstimatorsByHand compares every estimator with numbers worked out on paper.
func TestEstimatorsByHand(t *testing.T) {
	tests := map[string]struct {
		k       int
		rewards []float64
		want    []float64
	}{
		"group":                        {0, []float64{1, 0, 0, 0}, []float64{1.5, -0.5, -0.5, -0.5}}, // mean 1/4, deviation 1/2
		"leave_one_out":                {0, []float64{1, 0, 0, 0.5}, []float64{1 - 0.5/3, -0.5, -0.5, 0.5 - 1./3}},
		"no_deviation":                 {0, []float64{1, 0, 0, 0}, []float64{0.75, -0.25, -0.25, -0.25}},
		"reinforce_plus_plus_baseline": {0, []float64{1, 0, 0, 0}, []float64{0.75, -0.25, -0.25, -0.25}}, // before whitening
		// N 4, M 2, k 2: R = 1 - 1/6, S = sqrt(5)/6, right (1/6)/S, wrong (1/6 - 1/3)/S
		"pass_at_k": {2, []float64{1, 0, 1, 0}, []float64{1 / math.Sqrt(5), -1 / math.Sqrt(5), 1 / math.Sqrt(5), -1 / math.Sqrt(5)}},
	}
	for _, name := range grpo.EstimatorNames() {
		c, ok := tests[name]
		if !ok {
			t.Errorf("estimator %s has no row in this test", name)
			continue
		}
		if got := advantagesOf(build(t, grpo.Config{Estimator: name, K: c.k}, c.rewards...)); !near(got, c.want) {
			t.Errorf("%s of %v: %v, want %v", name, c.rewards, got, c.want)
		}
	}
	if got, want := advantagesOf(build(t, grpo.Config{}, 1, 0, 0, 0)), tests["group"].want; !near(got, want) {
		t.Errorf("without a name: %v, want %v", got, want)
	}
	if _, err := grpo.BuildGroup(rl.Group{}, grpo.Config{Estimator: "gae"}); err == nil || !strings.Contains(err.Error(), "want one of group, leave_one_out") {
		t.Errorf("an unknown estimator: %v", err)
	}
}

// reference holds the definition of each estimator, written without the formula that
// the product uses.
var reference = map[string]func(rewards []float64, k int) []float64{
	"group":         func(rewards []float64, _ int) []float64 { return scaled(rewards, deviation(rewards)+1e-6) },
	"leave_one_out": leftOut,
	"no_deviation":  func(rewards []float64, _ int) []float64 { return scaled(rewards, 1) },
	"reinforce_plus_plus_baseline": func(rewards []float64, _ int) []float64 {
		return scaled(rewards, 1)
	},
	"pass_at_k": overSets,
}

func scaled(rewards []float64, by float64) (out []float64) {
	for _, r := range rewards {
		out = append(out, (r-mean(rewards))/by)
	}
	return out
}

func leftOut(rewards []float64, _ int) (out []float64) {
	for i, r := range rewards {
		others := slices.Delete(slices.Clone(rewards), i, i+1)
		out = append(out, r-mean(others))
	}
	return out
}

// overSets goes through all sets of k trajectories.
func overSets(rewards []float64, k int) []float64 {
	n := len(rewards)
	out := make([]float64, n)
	var all []float64
	with := make([][]float64, n)
	for set := range 1 << n {
		best, size := math.Inf(-1), 0
		for i := range n {
			if set>>i&1 == 1 {
				best, size = max(best, rewards[i]), size+1
			}
		}
		if size != k {
			continue
		}
		all = append(all, best)
		for i := range n {
			if set>>i&1 == 1 {
				with[i] = append(with[i], best)
			}
		}
	}
	s := deviation(all) * math.Sqrt(float64(len(all)-1)/float64(len(all))) // of all sets, not of a sample of them
	if len(all) < 2 || s == 0 {
		return out
	}
	for i := range out {
		out[i] = (mean(with[i]) - mean(all)) / (s + 1e-6)
	}
	return out
}

func mean(xs []float64) (out float64) {
	for _, x := range xs {
		out += x
	}
	return out / float64(len(xs))
}

func deviation(xs []float64) float64 {
	squares := 0.0
	for _, x := range xs {
		squares += (x - mean(xs)) * (x - mean(xs))
	}
	return math.Sqrt(squares / float64(len(xs)-1))
}

// TestEstimatorsAreTheirDefinitions: on any rewards, each estimator equals its reference
// and sums to 0 over the group.
func TestEstimatorsAreTheirDefinitions(t *testing.T) {
	for _, name := range grpo.EstimatorNames() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				rewards := rapid.SliceOfN(rapid.SampledFrom([]float64{0, 1, 1, 0.5, -1, 0.125}), 2, 9).Draw(rt, "rewards")
				if slices.Max(rewards) == slices.Min(rewards) {
					rewards[0]++
				}
				k := 0
				if name == grpo.PassAtK {
					k = rapid.IntRange(1, len(rewards)).Draw(rt, "k")
				}
				got := advantagesOf(build(t, grpo.Config{Estimator: name, K: k}, rewards...))
				if want := reference[name](rewards, k); !near(got, want) {
					rt.Fatalf("rewards %v, k %d: %v, want %v", rewards, k, got, want)
				}
				if sum := mean(got); math.Abs(sum) > 1e-5 {
					rt.Fatalf("rewards %v, k %d: the advantages %v have the mean %g, want 0", rewards, k, got, sum)
				}
			})
		})
	}
}

// TestPassAtOneIsGRPO with the deviation of the group itself in place of the unbiased one.
func TestPassAtOneIsGRPO(t *testing.T) {
	rewards := []float64{1, 0, 0.5, 0, 1, 0.25}
	group := advantagesOf(build(t, grpo.Config{}, rewards...))
	for i := range group {
		group[i] *= math.Sqrt(6. / 5)
	}
	if got := advantagesOf(build(t, grpo.Config{Estimator: grpo.PassAtK, K: 1}, rewards...)); !near(got, group) {
		t.Errorf("pass@1 %v, want %v", got, group)
	}
	large := make([]float64, 4096)
	large[7] = 1
	for i, a := range advantagesOf(build(t, grpo.Config{Estimator: grpo.PassAtK, K: 2048}, large...)) {
		if math.IsNaN(a) || math.IsInf(a, 0) || (a > 0) != (i == 7) {
			t.Fatalf("advantage %d of a large group is %g", i, a)
		}
	}
}

// TestWhitening: over the tokens of a batch the whitened advantages have mean 0 and
// unbiased deviation 1, as masked_whiten of verl gives over a mask.
func TestWhitening(t *testing.T) {
	var all grpo.Moments
	var tokens []float64
	var groups []grpo.Built
	for _, rewards := range [][]float64{{1, 0, 0, 0}, {1, 1, 0, 1, 1}, {0.5, 0}} {
		b := build(t, grpo.Config{Estimator: "reinforce_plus_plus_baseline"}, rewards...)
		if b.Moments == nil {
			t.Fatal("no moments")
		}
		all.Merge(*b.Moments)
		groups = append(groups, b)
		for _, s := range b.Samples {
			tokens = append(tokens, slices.Repeat([]float64{float64(s.Advantage)}, s.LossTokens())...)
		}
	}
	w := all.Whitening()
	if all.Tokens != len(tokens) {
		t.Fatalf("%d tokens counted of %d", all.Tokens, len(tokens))
	}
	for _, b := range groups {
		for _, s := range b.Samples {
			want := (float64(s.Advantage) - mean(tokens)) / math.Sqrt(deviation(tokens)*deviation(tokens)+1e-8)
			if got := w.Apply(float64(s.Advantage)); math.Abs(got-want) > 1e-9 {
				t.Errorf("advantage %g becomes %g, want %g", s.Advantage, got, want)
			}
		}
	}
	var none *grpo.Whitening
	if none.Apply(0.5) != 0.5 || (grpo.Moments{Tokens: 1, Sum: 1}).Whitening() != nil {
		t.Error("nothing to whiten changes an advantage")
	}
	if got := build(t, grpo.Config{}, 1, 0); got.Moments != nil {
		t.Errorf("group has moments %+v", got.Moments)
	}
}
