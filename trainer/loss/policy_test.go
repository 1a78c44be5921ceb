package loss_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"pgregory.net/rapid"

	"temper/internal/config"
	"temper/trainer/loss"
)

// variants are all switches, alone and together.
func variants() map[string]config.Loss {
	base := config.Loss{ClipLow: 0.2, ClipHigh: 0.28}
	with := func(change func(*config.Loss)) config.Loss {
		l := base
		change(&l)
		return l
	}
	return map[string]config.Loss{
		"recipe":        base,
		"dual clip":     with(func(l *config.Loss) { l.DualClip = 1.5 }),
		"sequence mean": with(func(l *config.Loss) { l.Aggregation = config.AggregateSequences }),
		"constant":      with(func(l *config.Loss) { l.Aggregation, l.ConstantTokens = config.AggregateConstant, 24 }),
		"group mean":    with(func(l *config.Loss) { l.Aggregation = config.AggregateGroups }),
		"group mean k3": with(func(l *config.Loss) {
			l.Aggregation, l.KL.Coefficient, l.EntropyFraction = config.AggregateGroups, 0.3, 0.5
		}),
		"gspo": with(func(l *config.Loss) { l.Objective, l.Aggregation = config.ObjectiveGSPO, config.AggregateSequences }),
		"gspo dual": with(func(l *config.Loss) {
			l.Objective, l.Aggregation, l.DualClip = config.ObjectiveGSPO, config.AggregateSequences, 1.3
		}),
		"cispo":      with(func(l *config.Loss) { l.Objective = config.ObjectiveCISPO }),
		"cispo open": with(func(l *config.Loss) { l.Objective, l.ClipLow, l.ClipHigh = config.ObjectiveCISPO, 1, 2 }),
		"k3":         with(func(l *config.Loss) { l.KL.Coefficient = 0.5 }),
		"k3 ratio":   with(func(l *config.Loss) { l.KL = config.KL{Coefficient: 0.5, Estimator: config.EstimatorK3Ratio} }),
		"tis":        with(func(l *config.Loss) { l.Correction = config.Correction{Level: config.CorrectToken, Cap: 1.2} }),
		"tis on sequence": with(func(l *config.Loss) {
			l.Correction = config.Correction{Level: config.CorrectSequence, Cap: 1.2}
		}),
		"icepop": with(func(l *config.Loss) {
			l.Correction = config.Correction{Level: config.CorrectToken, MaskLow: 0.7, MaskHigh: 1.4}
		}),
		"mis on sequence": with(func(l *config.Loss) {
			l.Correction = config.Correction{Level: config.CorrectSequence, Cap: 1.2, MaskLow: 0.5, MaskHigh: 1.5}
		}),
		"rollout as old": with(func(l *config.Loss) { l.OldLogprobs = config.OldRollout }),
		"entropy":        with(func(l *config.Loss) { l.EntropyFraction = 0.5 }),
		"everything": with(func(l *config.Loss) {
			l.Aggregation, l.DualClip, l.EntropyFraction, l.KL.Coefficient = config.AggregateSequences, 2, 0.5, 0.1
			l.Correction = config.Correction{Level: config.CorrectSequence, Cap: 1.1, MaskLow: 0.4, MaskHigh: 2}
		}),
	}
}

// Every microbatch of these tests is one graph of this shape.
const rows, columns = 2, 24

// some draws a third of the objectives, so that many batches cost little.
func some(t *rapid.T, runners map[string]*runner) map[string]*runner {
	k, out := rapid.IntRange(0, 2).Draw(t, "third"), map[string]*runner{}
	for i, name := range slices.Sorted(maps.Keys(runners)) {
		if i%3 == k {
			out[name] = runners[name]
		}
	}
	return out
}

// runner evaluates one objective on microbatches: measures and d loss / d logprobs.
type runner struct {
	cfg  config.Loss
	exec *graph.Exec
}

func newRunner(t testing.TB, cfg config.Loss) *runner {
	t.Helper()
	backend, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Finalize)
	exec, err := graph.NewExec(backend, func(in []*node) []*node {
		inputs := loss.PolicyInputs{Logprobs: in[0], OldLogprobs: in[1], RolloutLogprobs: in[2], Advantages: in[4], Mask: in[5], Denominator: in[8]}
		if cfg.KL.Coefficient > 0 {
			inputs.RefLogprobs = in[3]
		}
		if cfg.EntropyFraction > 0 {
			inputs.Selected = in[6]
		}
		if loss.NeedsSequences(cfg) {
			inputs.Sequences = in[7]
		}
		if loss.NeedsGroups(cfg) {
			inputs.GroupTokens = in[9]
		}
		m := loss.Policy(cfg, inputs)
		return append([]*node{m.Vector()}, graph.Gradient(m[loss.Loss], in[0])...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return &runner{cfg: cfg, exec: exec}
}

// place says where a sequence begins in a microbatch and what number it has there.
type place struct {
	sequence, at, number int
}

// run evaluates a microbatch of packed sequences. What is outside of them, and
// outside the mask, is of no use to anybody.
func (r *runner) run(t fataler, sequences []sequence, places []place, denominator int) (m [loss.NumMeasures]float64, gradient [][]float64) {
	const n = rows * columns
	lp, old, rollout, ref, advantages := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	inGroup, groups := make([]float32, n), groupTokens(sequences)
	mask, selected, number := make([]bool, n), make([]bool, n), make([]int32, n)
	for i := range n {
		lp[i], old[i], rollout[i], ref[i], advantages[i] = float32(math.Inf(-1)), -7, float32(math.Inf(-1)), 50, 9
	}
	for _, p := range places {
		s := sequences[p.sequence]
		for i, tok := range s.tokens {
			at := p.at + i
			number[at], advantages[at] = int32(p.number), float32(s.advantage)
			inGroup[at] = float32(groups[s.group])
			if tok.mask {
				lp[at], old[at], rollout[at], ref[at] = float32(tok.lp), float32(tok.old), float32(tok.rollout), float32(tok.ref)
				mask[at], selected[at] = true, tok.selected
			}
		}
	}
	shaped := func(x any) *tensors.Tensor {
		switch x := x.(type) {
		case []float32:
			return tensors.FromFlatDataAndDimensions(x, rows, columns)
		case []bool:
			return tensors.FromFlatDataAndDimensions(x, rows, columns)
		default:
			return tensors.FromFlatDataAndDimensions(number, rows, columns)
		}
	}
	out, err := r.exec.Call(shaped(lp), shaped(old), shaped(rollout), shaped(ref), shaped(advantages), shaped(mask), shaped(selected), shaped(number), float32(denominator), shaped(inGroup))
	if err != nil {
		t.Fatal(err)
	}
	measures, errM := tensors.CopyFlatData[float32](out[0])
	g, errG := tensors.CopyFlatData[float32](out[1])
	if errM != nil || errG != nil {
		t.Fatal(errM, errG)
	}
	for i, x := range measures {
		m[i] = float64(x)
	}
	gradient = make([][]float64, len(sequences))
	for _, p := range places {
		for i := range sequences[p.sequence].tokens {
			gradient[p.sequence] = append(gradient[p.sequence], float64(g[p.at+i]))
			g[p.at+i] = 0
		}
	}
	for i, x := range g {
		if x != 0 {
			t.Fatalf("gradient %v at position %d, which holds no token", x, i)
		}
	}
	return m, gradient
}

type fataler interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// drawSequences draws trajectories that fit one microbatch, some without a loss token.
func drawSequences(t *rapid.T) []sequence {
	number := func(name string, low, high float64) float64 {
		return float64(float32(rapid.Float64Range(low, high).Draw(t, name)))
	}
	var out []sequence
	for room := rows * columns; room > 0 && len(out) < 6; {
		n := rapid.IntRange(1, min(12, room)).Draw(t, "length")
		room -= n
		s := sequence{advantage: number("advantage", -2, 2), group: rapid.IntRange(0, 2).Draw(t, "group"), tokens: make([]token, n)}
		for i := range s.tokens {
			old := number("old", -4, -0.1)
			s.tokens[i] = token{
				old: old, lp: old + number("moved", -0.7, 0.7), rollout: old + number("apart", -0.5, 0.5), ref: old + number("ref", -1, 1),
				mask: rapid.IntRange(0, 3).Draw(t, "mask") > 0, selected: rapid.Bool().Draw(t, "selected"),
			}
			s.tokens[i].lp = float64(float32(s.tokens[i].lp))
			s.tokens[i].rollout, s.tokens[i].ref = float64(float32(s.tokens[i].rollout)), float64(float32(s.tokens[i].ref))
		}
		out = append(out, s)
	}
	return out
}

// pack lays sequences out one after another, under numbers of any order.
func pack(members []int, sequences []sequence, number func(int) int) []place {
	var out []place
	at := 0
	for i, s := range members {
		out = append(out, place{sequence: s, at: at, number: number(i)})
		at += len(sequences[s].tokens)
	}
	return out
}

func all(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func denominator(cfg config.Loss, sequences []sequence) int {
	tokens, nonEmpty := 0, 0
	for _, s := range sequences {
		tokens += s.lossTokens()
		if s.lossTokens() > 0 {
			nonEmpty++
		}
	}
	return loss.Denominator(cfg, loss.Counts{Tokens: tokens, Sequences: nonEmpty, Groups: len(groupTokens(sequences))})
}

func close32(got, want float64) bool {
	return math.Abs(got-want) <= 2e-5*math.Max(1, math.Abs(want))
}

// TestEveryObjectiveIsItsFormula compares value, measures and gradient with the
// papers' sums in double precision; the gradient with finite differences of them.
func TestEveryObjectiveIsItsFormula(t *testing.T) {
	runners := map[string]*runner{}
	for name, cfg := range variants() {
		if err := cfg.Validate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		runners[name] = newRunner(t, cfg)
	}
	rapid.Check(t, func(t *rapid.T) {
		sequences := drawSequences(t)
		if denominator(config.Loss{}, sequences) == 0 {
			t.Skip("no token in the loss")
		}
		for name, r := range some(t, runners) {
			got, gradient := r.run(t, sequences, pack(all(len(sequences)), sequences, func(i int) int { return 7 * i }), denominator(r.cfg, sequences))
			_, want := reference(r.cfg, sequences, sequences)
			for i := range want {
				if !close32(got[i], want[i]) {
					t.Fatalf("%s: measure %d is %v, want %v", name, i, got[i], want[i])
				}
			}
			for s := range sequences {
				for i := range sequences[s].tokens {
					if slope := difference(r.cfg, sequences, s, i); !close32(gradient[s][i], slope) {
						t.Fatalf("%s: gradient of token %d of sequence %d is %v, want %v", name, i, s, gradient[s][i], slope)
					}
				}
			}
		}
	})
}

// difference is the slope of the reference in the log-probability of a token.
func difference(cfg config.Loss, sequences []sequence, s, i int) float64 {
	const h = 1e-6
	moved := func(by float64) float64 {
		changed := slices.Clone(sequences)
		changed[s].tokens = slices.Clone(sequences[s].tokens)
		changed[s].tokens[i].lp += by
		total, _ := reference(cfg, changed, sequences)
		return total
	}
	return (moved(h) - moved(-h)) / (2 * h)
}

// TestSplitsAddUp deals the sequences of a minibatch over microbatches at random:
// the measures and the gradients of the parts must be those of the whole,
// whatever the objective. Sequences stay whole; their neighbours, places and
// numbers differ.
func TestSplitsAddUp(t *testing.T) {
	runners := map[string]*runner{}
	for name, cfg := range variants() {
		runners[name] = newRunner(t, cfg)
	}
	rapid.Check(t, func(t *rapid.T) {
		sequences := drawSequences(t)
		if denominator(config.Loss{}, sequences) == 0 {
			t.Skip("no token in the loss")
		}
		parts := make([][]int, rapid.IntRange(1, 4).Draw(t, "parts"))
		for _, s := range rapid.Permutation(all(len(sequences))).Draw(t, "order") {
			k := rapid.IntRange(0, len(parts)-1).Draw(t, "part")
			parts[k] = append(parts[k], s)
		}
		for name, r := range some(t, runners) {
			d := denominator(r.cfg, sequences)
			whole, gradient := r.run(t, sequences, pack(all(len(sequences)), sequences, func(i int) int { return i }), d)
			var sum [loss.NumMeasures]float64
			for _, members := range parts {
				m, g := r.run(t, sequences, pack(members, sequences, func(i int) int { return rows*columns - 1 - 3*i }), d)
				for i := range m {
					if loss.Measure(i).IsMax() {
						sum[i] = max(sum[i], m[i])
					} else {
						sum[i] += m[i]
					}
				}
				for _, s := range members {
					for i := range g[s] {
						if math.Abs(g[s][i]-gradient[s][i]) > 1e-6 {
							t.Fatalf("%s: gradient of token %d of sequence %d depends on the split: %v, want %v", name, i, s, g[s][i], gradient[s][i])
						}
					}
				}
			}
			for i := range sum {
				if !close32(sum[i], whole[i]) {
					t.Fatalf("%s: measure %d is %v over the parts, want %v", name, i, sum[i], whole[i])
				}
			}
		}
	})
}

// byHand runs the recipe's objective, with a dual clip if it is not 0.
func byHand(t *testing.T, dual float64, denominator int, tokens ...[3]float64) (m [loss.NumMeasures]float64, gradient []float64) {
	t.Helper()
	var sequences []sequence
	for _, x := range tokens { // log-probability, old one, advantage
		sequences = append(sequences, sequence{advantage: x[2], tokens: []token{{lp: x[0], old: x[1], rollout: x[1], mask: true}}})
	}
	r := newRunner(t, config.Loss{ClipLow: 0.2, ClipHigh: 0.28, DualClip: dual})
	m, g := r.run(t, sequences, pack(all(len(sequences)), sequences, func(i int) int { return i }), denominator)
	for _, x := range g {
		gradient = append(gradient, x[0])
	}
	return m, gradient
}

func TestClippingByHand(t *testing.T) {
	// ratio and advantage of each token, the value of min(r A, clip(r) A), and its
	// slope in log pi.
	table := []struct{ ratio, advantage, gain, slope float64 }{
		{1, 2, 2, 2},          // on policy
		{1.2, 1, 1.2, 1.2},    // inside
		{1.5, 1, 1.28, 0},     // held at 1+high
		{0.5, 1, 0.5, 0.5},    // below, but a good token: not held
		{0.5, -1, -0.8, 0},    // held at 1-low
		{1.5, -1, -1.5, -1.5}, // above, but a bad token: not held
		{0.9, -2, -1.8, -1.8}, // inside
		{4, -1, -3, 0},        // held at the dual clip
		{3, 0, 0, 0},          // no advantage
	}
	var tokens [][3]float64
	var gain, kl float64
	for _, r := range table {
		tokens = append(tokens, [3]float64{math.Log(r.ratio) - 1, -1, r.advantage})
		gain += r.gain
		kl -= math.Log(r.ratio)
	}
	m, gradient := byHand(t, 3, 16, tokens...)
	for what, pair := range map[loss.Measure][2]float64{
		loss.Loss: {-gain / 16, 1e-6}, loss.ClipLow: {1, 0}, loss.ClipHigh: {1, 0}, loss.ClipDual: {1, 0}, loss.OldKL: {kl, 1e-5},
	} {
		near(t, fmt.Sprintf("measure %d", what), float32(m[what]), pair[0], pair[1])
	}
	for i, r := range table {
		near(t, "gradient", float32(gradient[i]), -r.slope/16, 1e-6)
	}
}

func TestOnPolicyIsExact(t *testing.T) {
	m, gradient := byHand(t, 0, 1, [3]float64{-0.1, -0.1, 0.5}, [3]float64{-3.7, -3.7, -1.5}, [3]float64{-11.2, -11.2, 1})
	for _, i := range []loss.Measure{loss.Loss, loss.ClipLow, loss.ClipHigh, loss.OldKL} {
		if m[i] != 0 {
			t.Errorf("measure %d is %v, want exactly zero for advantages that add up to zero", i, m[i])
		}
	}
	for i, want := range []float64{-0.5, 1.5, -1} {
		if gradient[i] != want {
			t.Errorf("gradient[%d] = %v, want exactly -advantage = %v", i, gradient[i], want)
		}
	}
}

// TestAbsurdRatiosStayFinite: one token on which the policies have nothing in
// common must not spoil the sums.
func TestAbsurdRatiosStayFinite(t *testing.T) {
	for name, cfg := range variants() {
		r := newRunner(t, cfg)
		for _, far := range []float64{-200, 200} {
			s := []sequence{{advantage: -1, tokens: []token{{lp: -1, old: -1 + far, rollout: -1 - far, ref: -1 + far, mask: true, selected: true}}},
				{advantage: 1, tokens: []token{{lp: -1, old: -1 - far, rollout: -1, ref: -1 - far, mask: true, selected: true}}}}
			m, gradient := r.run(t, s, pack(all(2), s, func(i int) int { return i }), denominator(cfg, s))
			for _, x := range append(m[:], gradient[0][0], gradient[1][0]) {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					t.Fatalf("%s: measures %v, gradient %v: not finite", name, m, gradient)
				}
			}
		}
	}
}

func TestInputsThatDoNotBelongTogether(t *testing.T) {
	refused := map[string]struct {
		cfg    config.Loss
		change func(*loss.PolicyInputs)
	}{
		"no sequences":            {variants()["gspo"], func(in *loss.PolicyInputs) { in.Sequences = nil }},
		"no groups":               {variants()["group mean"], func(*loss.PolicyInputs) {}},
		"no reference":            {variants()["k3"], func(in *loss.PolicyInputs) { in.RefLogprobs = nil }},
		"reference for no reason": {variants()["recipe"], func(*loss.PolicyInputs) {}},
		"not valid":               {config.Loss{ClipLow: 0.2, ClipHigh: 0.28, Objective: "reinforce"}, func(*loss.PolicyInputs) {}},
	}
	for name, c := range refused {
		backend, err := compute.NewWithConfig("go")
		if err != nil {
			t.Fatal(err)
		}
		exec := graph.MustNewExec(backend, func(x, mask, seq, d *node) *node {
			in := loss.PolicyInputs{Logprobs: x, OldLogprobs: x, RolloutLogprobs: x, RefLogprobs: x, Advantages: x, Mask: mask, Sequences: seq, Denominator: d}
			c.change(&in)
			m := loss.Policy(c.cfg, in)
			return m.Vector()
		})
		if _, err := exec.Call([]float32{0}, []bool{true}, []int32{0}, float32(1)); err == nil {
			t.Errorf("%s: accepted", name)
		}
		backend.Finalize()
	}
}
