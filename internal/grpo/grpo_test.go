package grpo_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"temper/internal/grpo"
	"temper/internal/rl"
	"temper/sandbox/status"
)

// responses are what a policy sees of a call by its status.
var responses = map[status.Status]string{status.OK: "3", status.Error: "NameError at line 1", status.TimeLimit: "TimeLimit: too long", status.Malformed: "Failed to decode"}

// made is a trajectory with the given reward and quality.
func made(problem string, rollout int, reward float64, statuses ...status.Status) rl.Trajectory {
	t := rl.Trajectory{
		ProblemID: problem, Rollout: rollout, Reward: reward, StopReason: rl.StopAnswered, AnswerTags: 1,
		Tokens: []int32{1, int32(rollout), 3}, PromptTokens: 1, LossMask: []bool{false, true, true},
		RolloutLogprobs: []float32{0, -1, -2}, Turns: []rl.Turn{{Start: 1, End: 3}},
	}
	for _, s := range statuses {
		t.Turns[0].Calls = append(t.Turns[0].Calls, rl.ToolCall{ID: "id", Status: s, Response: responses[s]})
	}
	return t
}

func drawGroup(t *rapid.T, problem string, n int) rl.Group {
	g := rl.Group{Problem: rl.Problem{ID: problem}}
	statuses := []status.Status{status.OK, status.OK, status.Error, status.TimeLimit, status.Malformed}
	for i := range n {
		tr := made(problem, i, float64(rapid.IntRange(0, 1).Draw(t, "reward")), rapid.SliceOfN(rapid.SampledFrom(statuses), 0, 3).Draw(t, "calls")...)
		tr.AnswerTags = rapid.IntRange(0, 3).Draw(t, "tags")
		if rapid.IntRange(0, 7).Draw(t, "infra") == 0 {
			tr.StopReason, tr.Reward = rl.StopInfraError, 0
		}
		g.Trajectories = append(g.Trajectories, tr)
	}
	return g
}

func drawRoC(t *rapid.T, groupSize int) grpo.RoC {
	c := grpo.RoC{
		Enabled: rapid.Bool().Draw(t, "enabled"), Mode: rapid.SampledFrom([]string{grpo.ModePaper, grpo.ModeReleased}).Draw(t, "mode"),
		Smoothing: 0.1, MinPositive: rapid.IntRange(0, groupSize).Draw(t, "min positive"),
	}
	c.MinNegative = rapid.IntRange(0, groupSize-c.MinPositive).Draw(t, "min negative")
	return c
}

func scored(ts []rl.Trajectory) (pos, neg int) {
	for _, t := range ts {
		if t.Reward > 0 {
			pos++
		} else {
			neg++
		}
	}
	return pos, neg
}

// TestResampleKeepsEveryCountPromise: G in all, the stated minima, the
// proportional share where no minimum bites, and nothing twice.
func TestResampleKeepsEveryCountPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 12).Draw(t, "G")
		g := drawGroup(t, "p", rapid.IntRange(1, 30).Draw(t, "n"))
		cfg := drawRoC(t, size)
		kept := grpo.Resample(g.Trajectories, size, cfg, 5)
		pos, neg := scored(g.Trajectories)
		keptPos, keptNeg := scored(kept)
		if len(kept) != min(size, pos+neg) {
			t.Fatalf("%d kept of %d, want %d", len(kept), pos+neg, size)
		}
		seen := map[int]bool{}
		for _, tr := range kept {
			if seen[tr.Rollout] {
				t.Fatalf("rollout %d kept twice", tr.Rollout)
			}
			seen[tr.Rollout] = true
		}
		if !cfg.Enabled || pos+neg <= size {
			return
		}
		if keptPos < min(cfg.MinPositive, pos) || keptNeg < min(cfg.MinNegative, neg) {
			t.Fatalf("%d+%d kept, minima %d+%d of %d+%d", keptPos, keptNeg, cfg.MinPositive, cfg.MinNegative, pos, neg)
		}
		share := math.Floor(float64(neg*size) / float64(pos+neg))
		if cfg.Mode == grpo.ModeReleased {
			share = math.RoundToEven(float64(neg*size) / float64(pos+neg))
		}
		tight := keptPos == min(cfg.MinPositive, pos) || keptNeg == min(cfg.MinNegative, neg)
		if keptNeg != int(share) && !tight {
			t.Fatalf("%d negatives kept of %d/%d, want %v", keptNeg, neg, pos+neg, share)
		}
	})
}

// TestReleasedCounts are the measured counts of the released code for 32 -> 16.
func TestReleasedCounts(t *testing.T) {
	for neg, want := range map[int]int{0: 0, 1: 1, 2: 2, 5: 2, 7: 4, 16: 8, 27: 14, 30: 14, 31: 15, 32: 16} {
		var ts []rl.Trajectory
		for i := range 32 {
			reward := 1.0
			if i < neg {
				reward = 0
			}
			ts = append(ts, made("p", i, reward))
		}
		cfg := grpo.RoC{Enabled: true, Mode: grpo.ModeReleased, MinPositive: 2, MinNegative: 2}
		kept := grpo.Resample(ts, 16, cfg, 1)
		if _, got := scored(kept); got != want || len(kept) != 16 {
			t.Errorf("%d negatives of 32: %d kept of %d, want %d of 16", neg, got, len(kept), want)
		}
	}
}

func TestReleasedKeepsTheCleanest(t *testing.T) {
	ts := []rl.Trajectory{
		made("p", 0, 1, status.Error), made("p", 1, 1, status.OK), made("p", 2, 1), made("p", 3, 1, status.OK, status.Error, status.OK),
		made("p", 4, 0), made("p", 5, 0), made("p", 6, 0), made("p", 7, 0),
	}
	kept := grpo.Resample(ts, 4, grpo.RoC{Enabled: true, Mode: grpo.ModeReleased}, 1)
	var got []int
	for _, tr := range kept {
		got = append(got, tr.Rollout)
	}
	if !slices.Equal(got, []int{1, 3, 4, 5}) {
		t.Errorf("kept %v, want the two cleanest and the first two failures", got)
	}
}

// TestPaperWeights: over many seeds, positives are kept in proportion to
// 1/(p+s), and negatives evenly whatever their quality.
func TestPaperWeights(t *testing.T) {
	const smoothing, seeds = 0.5, 20000
	ts := []rl.Trajectory{
		made("p", 0, 1, status.OK), made("p", 1, 1, status.Error), // weights 1/0.5 and 1/1.5
		made("p", 2, 0, status.OK), made("p", 3, 0, status.Error),
	}
	counts := map[int]int{}
	for seed := range uint64(seeds) {
		kept := grpo.Resample(ts, 2, grpo.RoC{Enabled: true, Mode: grpo.ModePaper, Smoothing: smoothing}, seed)
		for _, tr := range kept {
			counts[tr.Rollout]++
		}
	}
	for rollout, want := range map[int]float64{0: 0.75, 1: 0.25, 2: 0.5, 3: 0.5} {
		if got := float64(counts[rollout]) / seeds; math.Abs(got-want) > 0.015 {
			t.Errorf("rollout %d kept with frequency %.3f, want %.2f", rollout, got, want)
		}
	}
}

// TestFailuresAreChosenBlindToQuality: exchanging the quality of failures does
// not change which are kept.
func TestFailuresAreChosenBlindToQuality(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "G")
		g := drawGroup(t, "p", 16)
		cfg := drawRoC(t, size)
		seed := rapid.Uint64().Draw(t, "seed")
		failures := func(ts []rl.Trajectory) (out []int) {
			kept := grpo.Resample(ts, size, cfg, seed)
			for _, tr := range kept {
				if tr.Reward == 0 {
					out = append(out, tr.Rollout)
				}
			}
			return out
		}
		want := failures(g.Trajectories)
		for i := range g.Trajectories {
			if tr := &g.Trajectories[i]; tr.Reward == 0 {
				tr.AnswerTags = rapid.IntRange(0, 5).Draw(t, "tags")
				tr.Turns[0].Calls = []rl.ToolCall{{Status: rapid.SampledFrom([]status.Status{status.OK, status.Error}).Draw(t, "status")}}
			}
		}
		if diff := cmp.Diff(failures(g.Trajectories), want); diff != "" {
			t.Fatalf("quality of failures changed the choice:\n%s", diff)
		}
	})
}

// TestOrderOfArrivalDoesNotMatter to what is trained on.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "G")
		roc := drawRoC(t, size)
		g := drawGroup(t, "p", rapid.IntRange(1, 12).Draw(t, "n"))
		seed := rapid.Uint64().Draw(t, "seed")
		cfg := grpo.Config{GroupSize: size, RoC: roc, Seed: seed}
		built, err := grpo.BuildGroup(g, cfg)
		if err != nil {
			t.Fatal(err)
		}
		kept, samples, fate := built.Kept, built.Samples, built.Fate
		shuffled := rl.Group{Problem: g.Problem, Trajectories: rapid.Permutation(g.Trajectories).Draw(t, "order")}
		again, err := grpo.BuildGroup(shuffled, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(again, built); diff != "" {
			t.Fatalf("another order gives another group:\n%s", diff)
		}
		if fate == grpo.FateTooSmall {
			if small := len(g.Trajectories) - excluded(g); !roc.Enabled || roc.Mode != grpo.ModeReleased || small >= size || len(kept) > 0 {
				t.Fatalf("%+v: a group of %d is too small for %d, %d kept", roc, small, size, len(kept))
			}
			return
		}
		checkGroup(t, g, kept, samples, fate, size)
	})
}

func excluded(g rl.Group) (n int) {
	for i := range g.Trajectories {
		if g.Trajectories[i].Excluded() {
			n++
		}
	}
	return n
}

// checkGroup: nothing of the system's failures, advantages that sum to zero and
// have the sign of success, and a fate that fits the rewards.
func checkGroup(t *rapid.T, g rl.Group, kept []rl.Trajectory, samples []rl.Sample, fate grpo.Fate, groupSize int) {
	byRollout := map[int]rl.Trajectory{}
	rewards := map[float64]bool{}
	for _, tr := range g.Trajectories {
		byRollout[tr.Rollout] = tr
		if tr.StopReason != rl.StopInfraError {
			rewards[tr.Reward] = true
		}
	}
	sum := 0.0
	for i, s := range samples {
		tr := byRollout[s.Rollout]
		if tr.StopReason == rl.StopInfraError {
			t.Fatalf("%s/%d failed for the system's sake and is trained on", s.ProblemID, s.Rollout)
		}
		if (s.Advantage > 0) != (tr.Reward > 0) && s.Advantage != 0 {
			t.Fatalf("reward %v has advantage %v", tr.Reward, s.Advantage)
		}
		if !cmp.Equal(s.Tokens, tr.Tokens) || !cmp.Equal(s.LossMask, tr.LossMask) || !cmp.Equal(s.RolloutLogprobs, tr.RolloutLogprobs) || kept[i].Rollout != s.Rollout {
			t.Fatalf("%s/%d lost or changed tokens", s.ProblemID, s.Rollout)
		}
		sum += float64(s.Advantage)
	}
	if math.Abs(sum) > 1e-5 || len(samples) > groupSize || len(kept) != len(samples) {
		t.Fatalf("advantages sum to %v over %d", sum, len(samples))
	}
	want := grpo.FateKept
	switch {
	case len(rewards) == 0:
		want = grpo.FateEmpty
	case len(rewards) == 1 && rewards[0]:
		want = grpo.FateAllWrong
	case len(rewards) == 1:
		want = grpo.FateAllCorrect
	}
	if fate != want || (len(samples) > 0) != (want == grpo.FateKept) {
		t.Fatalf("rewards %v: fate %s with %d samples, want %s", rewards, fate, len(samples), want)
	}
}

// TestInfraFailureLeavesTheBaseline: with and without it, the same advantages.
func TestInfraFailureLeavesTheBaseline(t *testing.T) {
	roc := grpo.RoC{Enabled: true, Mode: grpo.ModePaper, Smoothing: 0.1}
	g := rl.Group{Problem: rl.Problem{ID: "p"}, Trajectories: []rl.Trajectory{made("p", 0, 1), made("p", 1, 0), made("p", 2, 1)}}
	cfg := grpo.Config{GroupSize: 8, RoC: roc, Seed: 1}
	want, err := grpo.BuildGroup(g, cfg)
	if err != nil {
		t.Fatal(err)
	}
	failed := made("p", 3, 0)
	failed.StopReason = rl.StopInfraError
	g.Trajectories = append(g.Trajectories, failed)
	got, err := grpo.BuildGroup(g, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, want); diff != "" || len(got.Samples) != 3 {
		t.Errorf("%d samples, diff\n%s", len(got.Samples), diff)
	}
	onlyInfraWrong := rl.Group{Problem: rl.Problem{ID: "p"}, Trajectories: []rl.Trajectory{made("p", 0, 1), failed}}
	if got, err := grpo.BuildGroup(onlyInfraWrong, cfg); err != nil || len(got.Samples) != 0 || got.Fate != grpo.FateAllCorrect {
		t.Errorf("an infrastructure failure served as the wrong answer: %s, %v", got.Fate, err)
	}
}

func TestPenalties(t *testing.T) {
	tests := map[string]struct {
		tags, turns   int
		statuses      []status.Status
		pErr, pFormat float64
	}{
		"clean":          {1, 2, []status.Status{status.OK}, 0, 0},
		"no call":        {1, 1, nil, 0.5, 0},
		"half failed":    {1, 2, []status.Status{status.OK, status.TimeLimit}, 0.5, 0},
		"malformed":      {1, 2, []status.Status{status.Malformed}, 1, 0},
		"no answer":      {0, 2, []status.Status{status.OK}, 0, 1},
		"two answers":    {2, 4, []status.Status{status.OK}, 0, 0.25},
		"many answers":   {9, 2, []status.Status{status.OK}, 0, 1},
		"nothing at all": {0, 0, nil, 0.5, 1},
	}
	for name, c := range tests {
		tr := rl.Trajectory{AnswerTags: c.tags, Turns: make([]rl.Turn, c.turns)}
		for _, s := range c.statuses {
			tr.Turns[0].Calls = append(tr.Turns[0].Calls, rl.ToolCall{Status: s, Response: "no error here"})
		}
		if pErr, pFormat := (grpo.RoC{Mode: grpo.ModePaper}).Penalties(&tr); pErr != c.pErr || pFormat != c.pFormat {
			t.Errorf("%s: %v, %v; want %v, %v", name, pErr, pFormat, c.pErr, c.pFormat)
		}
	}
	printed := made("p", 0, 1, status.OK)
	printed.Turns[0].Calls[0].Response = "Error: error"
	if pErr, _ := (grpo.RoC{Mode: grpo.ModePaper}).Penalties(&printed); pErr != 0 {
		t.Errorf("a printed word counts as a failed call: %v", pErr)
	}
}

func TestBuildGroupRefusesBadRecords(t *testing.T) {
	good := func() rl.Group {
		return rl.Group{Problem: rl.Problem{ID: "p"}, Trajectories: []rl.Trajectory{made("p", 0, 1), made("p", 1, 0)}}
	}
	roc := grpo.RoC{Enabled: true, Mode: grpo.ModePaper, Smoothing: 0.1}
	for want, change := range map[string]func(*rl.Group){
		"never scored":   func(g *rl.Group) { g.Trajectories[0].StopReason = "" },
		"given twice":    func(g *rl.Group) { g.Trajectories[1].Rollout = 0 },
		"in group p":     func(g *rl.Group) { g.Trajectories[1].ProblemID = "q" },
		"reward NaN":     func(g *rl.Group) { g.Trajectories[1].Reward = math.NaN() },
		"lengths differ": func(g *rl.Group) { g.Trajectories[1].LossMask = nil },
	} {
		g := good()
		change(&g)
		if _, err := grpo.BuildGroup(g, grpo.Config{GroupSize: 2, RoC: roc, Seed: 1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one naming %q", err, want)
		}
	}
}

// TestOverlong: nothing up to the buffer, a straight line in it, 1 at the limit; the
// penalty moves advantages and neither the choice of groups nor that of trajectories.
func TestOverlong(t *testing.T) {
	penalty := grpo.Overlong(100, 20)
	for tokens, want := range map[int]float64{1: 0, 80: 0, 90: 0.5, 100: 1, 130: 1} {
		tr := rl.Trajectory{Tokens: make([]int32, tokens+3), PromptTokens: 3}
		if got := penalty(&tr); got != want {
			t.Errorf("%d tokens lose %g, want %g", tokens, got, want)
		}
	}
	g := rl.Group{Problem: rl.Problem{ID: "p"}, Trajectories: []rl.Trajectory{made("p", 0, 1), made("p", 1, 1), made("p", 2, 0)}}
	long := func(t *rl.Trajectory) float64 { return float64(t.Rollout%2) / 2 }
	cfg := grpo.Config{GroupSize: 3, Seed: 1}
	without, err := grpo.BuildGroup(g, cfg)
	cfg.Penalty = long
	with, err2 := grpo.BuildGroup(g, cfg)
	if err != nil || err2 != nil || with.Fate != grpo.FateKept || len(with.Kept) != 3 || with.Kept[1].Reward != 1 {
		t.Fatalf("%v %v: %s, %d kept", err, err2, with.Fate, len(with.Kept))
	}
	plain, got := without.Samples, with.Samples
	if plain[0].Advantage != plain[1].Advantage || got[0].Advantage <= got[1].Advantage || got[1].Advantage <= got[2].Advantage {
		t.Errorf("advantages %v, %v, %v", got[0].Advantage, got[1].Advantage, got[2].Advantage)
	}
	g.Trajectories = g.Trajectories[:2]
	if got, _ := grpo.BuildGroup(g, cfg); got.Fate != grpo.FateAllCorrect {
		t.Errorf("a group that is all correct is %s", got.Fate)
	}
}

// TestCountsOfEveryGroup: with 2G of 16, 30 and 32, each number of failures in both modes.
// The release rounds both counts half to even, keeps its minima, and for an odd G may miss
// it, where its assertion ends the run: there G is kept, with its failures, by leaving the
// rest to the positives.
func TestCountsOfEveryGroup(t *testing.T) {
	var asserted []int
	for _, sampled := range []int{16, 30, 32} {
		size := sampled / 2
		for neg := range sampled + 1 {
			var ts []rl.Trajectory
			for i := range sampled {
				reward := 1.0
				if i < neg {
					reward = 0
				}
				ts = append(ts, made("p", i, reward))
			}
			_, paper := scored(grpo.Resample(ts, size, grpo.RoC{Enabled: true, Mode: grpo.ModePaper, Smoothing: 0.1}, 3))
			if paper != neg/2 {
				t.Errorf("paper, %d failures of %d: %d are kept, want %d", neg, sampled, paper, neg/2)
			}
			pos, released := scored(grpo.Resample(ts, size, grpo.RoC{Enabled: true, Mode: grpo.ModeReleased, MinPositive: 2, MinNegative: 2}, 3))
			zeros, ones, ok := releaseCounts(neg, sampled-neg, size)
			if pos+released != size || released != zeros || ok && pos != ones {
				t.Errorf("released, %d failures of %d: %d and %d are kept, want %d and %d", neg, sampled, released, pos, zeros, ones)
			}
			if !ok && size%2 == 0 {
				t.Errorf("%d failures of %d: the release would not keep %d", neg, sampled, size)
			}
			if !ok {
				asserted = append(asserted, neg)
			}
		}
	}
	if !slices.Equal(asserted, []int{7, 9, 11, 13, 15, 17, 19, 21, 23}) {
		t.Errorf("of 30, the release's assertion ends the run for %v failures", asserted)
	}
}

// releaseCounts is the release's arithmetic for n of zeros and ones, with minima of 2,
// statement by statement. ok says that its assertion on the sum holds.
func releaseCounts(zeros, ones, n int) (z, p int, ok bool) {
	const least = 2
	z = int(math.RoundToEven(float64(zeros*n) / float64(zeros+ones)))
	p = int(math.RoundToEven(float64(ones*n) / float64(zeros+ones)))
	if z <= min(least, zeros) {
		z, p = min(least, zeros), n-min(least, zeros)
	}
	if p <= min(least, ones) {
		z, p = n-min(least, ones), min(least, ones)
	}
	return z, p, z+p == n
}

// TestDrawsByChiSquare: over 100,000 seeds, one of four positives is kept with probability
// proportional to 1/(p+s), and one of four failures with the same probability, whatever
// their quality. The bound is exceeded by chance once in 100,000 times.
func TestDrawsByChiSquare(t *testing.T) {
	const smoothing, seeds, bound = 0.1, 100_000, 25.9 // chi-square of 3 degrees of freedom
	calls := [][]status.Status{{status.OK}, {status.OK, status.Error}, {}, {status.Error}}
	weights := []float64{1 / 0.1, 1 / 0.6, 1 / 0.6, 1 / 1.1}
	var ts []rl.Trajectory
	for i, c := range calls {
		ts = append(ts, made("p", i, 1, c...), made("p", 4+i, 0, c...))
	}
	var kept [8]float64
	for seed := range uint64(seeds) {
		for _, tr := range grpo.Resample(ts, 2, grpo.RoC{Enabled: true, Mode: grpo.ModePaper, Smoothing: smoothing}, seed) {
			kept[tr.Rollout]++
		}
	}
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	positives, failures := 0.0, 0.0
	for i, w := range weights {
		want := seeds * w / sum
		positives += (kept[i] - want) * (kept[i] - want) / want
		failures += (kept[4+i] - seeds/4) * (kept[4+i] - seeds/4) / (seeds / 4)
	}
	if positives > bound || failures > bound {
		t.Errorf("chi-square %.1f of positives and %.1f of failures, want at most %.1f: %v", positives, failures, bound, kept)
	}
}

// TestDrawsOfWholeGroups: of 16, 30 and 32, half of them failures, each of the failures is
// kept as often as any other, whatever its quality, and so is each of the positives of one
// quality. Draws without repetition are less even than independent ones by m/(m-1).
func TestDrawsOfWholeGroups(t *testing.T) {
	const seeds = 20_000                                    // 160,000 draws of failures and more
	bounds := map[int]float64{16: 35.3, 30: 48.8, 32: 50.5} // p = 1e-5 of m-1 degrees of freedom
	for sampled, bound := range bounds {
		half := sampled / 2
		var ts []rl.Trajectory
		for i := range half {
			quality := []status.Status{[]status.Status{status.OK, status.Error}[i%2]}
			ts = append(ts, made("p", i, 1, status.OK), made("p", half+i, 0, quality...))
		}
		kept := make([]float64, sampled)
		for seed := range uint64(seeds) {
			for _, tr := range grpo.Resample(ts, half, grpo.RoC{Enabled: true, Mode: grpo.ModePaper, Smoothing: 0.1}, seed) {
				kept[tr.Rollout]++
			}
		}
		for name, counts := range map[string][]float64{"positives": kept[:half], "failures": kept[half:]} {
			total := 0.0
			for _, n := range counts {
				total += n
			}
			m, sum := float64(half), 0.0
			want := total / m
			rate := want / seeds
			for _, n := range counts {
				sum += (n - want) * (n - want) / (want * (1 - rate) * m / (m - 1))
			}
			if sum > bound {
				t.Errorf("%s of %d: chi-square %.1f, want at most %.1f: %v", name, sampled, sum, bound, counts)
			}
		}
	}
}
