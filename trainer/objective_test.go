package trainer_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/rl"
	"temper/internal/series"
	"temper/trainer"
	"temper/trainer/checkpoint"
)

// objectives are the switches that change what a trainer does around a loss.
func objectives() map[string]config.Loss {
	with := func(change func(*config.Loss)) config.Loss {
		l := tinyConfig().Loss
		change(&l)
		return l
	}
	return map[string]config.Loss{
		"recipe":        with(func(*config.Loss) {}),
		"sequence mean": with(func(l *config.Loss) { l.Aggregation = config.AggregateSequences }),
		"constant":      with(func(l *config.Loss) { l.Aggregation, l.ConstantTokens = config.AggregateConstant, 40 }),
		"group mean":    with(func(l *config.Loss) { l.Aggregation = config.AggregateGroups }),
		"gspo":          with(func(l *config.Loss) { l.Objective, l.Aggregation = config.ObjectiveGSPO, config.AggregateSequences }),
		"cispo":         with(func(l *config.Loss) { l.Objective = config.ObjectiveCISPO }),
		"k3":            with(func(l *config.Loss) { l.KL.Coefficient = 0.5 }),
		"sequence correction": with(func(l *config.Loss) {
			l.Correction = config.Correction{Level: config.CorrectSequence, Cap: 1.5, MaskLow: 1e-6, MaskHigh: 900}
		}),
		"rollout as old": with(func(l *config.Loss) { l.OldLogprobs = config.OldRollout }),
		"entropy":        with(func(l *config.Loss) { l.EntropyFraction = 0.3 }),
		"overlong":       with(func(l *config.Loss) { l.Overlong = config.OverlongMask }),
	}
}

// moved is a trainer whose policy is not its reference policy any more. The
// policy is the same whatever the configuration: AdamW's first step is as large
// for a gradient that is rounding as for any other, so it is made only once.
func moved(t *testing.T, cfg trainer.Config) *trainer.Trainer {
	t.Helper()
	plain := tinyConfig()
	plain.Model = cfg.Model
	other := initialised(t, plain)
	if _, err := other.SFTStep(t.Context(), samples(4, 40, 8), adam(), constant(1)); err != nil {
		t.Fatal(err)
	}
	state, err := other.Snapshot(checkpoint.State{})
	if err != nil {
		t.Fatal(err)
	}
	tr := initialised(t, cfg)
	if err := errors.Join(tr.KeepReference(), tr.RestoreState(state)); err != nil {
		t.Fatal(err)
	}
	return tr
}

// twice makes the two updates of a step, so small that the second sees no more
// of the first one's rounding than a number of its size.
func twice(t *testing.T, tr *trainer.Trainer, s []rl.Sample) rl.TrainMetrics {
	t.Helper()
	o := adam()
	o.LR = 1e-6
	m, err := tr.Update(t.Context(), rl.Batch{Step: 2, Samples: s}, trainer.UpdateOptions{Optimizer: o, Position: constant(2), NumMinibatches: 2})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fromEngine gives the samples log-probabilities near the policy, as an engine would.
func fromEngine(t *testing.T, tr *trainer.Trainer, s []rl.Sample) {
	t.Helper()
	lp, err := tr.Logprobs(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s {
		for p, in := range s[i].LossMask {
			if in {
				s[i].RolloutLogprobs[p] = lp[i][p] + 0.2*float32((p*7+i)%5-2)/10
			}
		}
	}
}

func gap(a, b rl.TrainMetrics) float64 {
	x, y := (&series.Step{Train: a}).Values(), (&series.Step{Train: b}).Values()
	most := math.Abs(a.Loss - b.Loss)
	for name := range x {
		most = max(most, math.Abs(x[name]-y[name])/max(1, math.Abs(x[name])))
	}
	return most
}

// TestNoObjectiveDependsOnMicrobatches: however the device passes of a minibatch
// are cut, and whether rows hold one trajectory or several, metrics and
// gradients are the same.
func TestNoObjectiveDependsOnMicrobatches(t *testing.T) {
	t.Parallel()
	for name, l := range objectives() {
		t.Run(name, func(t *testing.T) {
			var want rl.TrainMetrics
			var first *trainer.Trainer
			for i, plan := range []struct {
				tokens int
				pack   bool
			}{{1 << 14, false}, {100, false}, {128, true}} {
				cfg := tinyConfig()
				cfg.Loss, cfg.MicrobatchTokens, cfg.Pack = l, plan.tokens, plan.pack
				cfg.Model.NumHiddenLayers = 1 // what is asked here is of the loss
				tr := moved(t, cfg)
				s := samples(9, 60, 5)
				s[3].Truncated = true
				fromEngine(t, tr, s)
				got := twice(t, tr, s)
				if i == 0 {
					want, first = got, tr
					continue
				}
				if d := gap(want, got); d > 2e-5 || got.LossTokens != want.LossTokens {
					t.Errorf("%+v: metrics differ by %v:\n%s", plan, d, cmp.Diff(want, got))
				}
				a, errA := first.Snapshot(checkpoint.State{})
				b, errB := tr.Snapshot(checkpoint.State{})
				if err := errors.Join(errA, errB); err != nil {
					t.Fatal(err)
				}
				if d := distance(a.FirstMoments, b.FirstMoments); d > 1e-5 {
					t.Errorf("%+v: gradients differ by %v", plan, d)
				}
			}
		})
	}
}

// TestFirstUpdateOfEveryObjectiveIsOnPolicy: the old policy is the present one,
// exactly.
func TestFirstUpdateOfEveryObjectiveIsOnPolicy(t *testing.T) {
	t.Parallel()
	for name, l := range objectives() {
		cfg := tinyConfig()
		cfg.Loss, cfg.MicrobatchTokens = l, 64
		tr := moved(t, cfg)
		s := samples(7, 60, 9)
		fromEngine(t, tr, s)
		m := update(t, tr, 2, s, 1)
		if l.OldLogprobs == config.OldRollout {
			if m.PPOKL == 0 {
				t.Errorf("%s: ppo_kl is 0 although the engine's policy is another", name)
			}
			continue
		}
		if m.PPOKL != 0 || m.ClipLow != 0 || m.ClipHigh != 0 {
			t.Errorf("%s: ppo_kl %v, clip %v %v; want exactly 0", name, m.PPOKL, m.ClipLow, m.ClipHigh)
		}
		if m.MismatchMax < 0.039 || m.MismatchMax > 0.041 || m.WeightMax <= 1 {
			t.Errorf("%s: largest difference %v, want 0.04; largest weight %v", name, m.MismatchMax, m.WeightMax)
		}
	}
}

// TestReferencePolicyHolds: a penalty needs its reference, sees none at first,
// and brings a policy that went away nearer again.
func TestReferencePolicyHolds(t *testing.T) {
	t.Parallel()
	cfg := tinyConfig()
	cfg.Loss.KL.Coefficient = 1
	tr := initialised(t, cfg)
	s := samples(6, 40, 3)
	for i := range s {
		s[i].Advantage = 0
	}
	o := trainer.UpdateOptions{Optimizer: adam(), Position: constant(1)}
	if _, err := tr.Update(t.Context(), rl.Batch{Step: 1, Samples: s}, o); !errors.Is(err, trainer.ErrNoReference) || !strings.Contains(err.Error(), "rl.loss.kl.coefficient") {
		t.Fatalf("got %v, want %v", err, trainer.ErrNoReference)
	}
	store := memblob.New()
	ref, err := tr.Save(t.Context(), store, "checkpoints", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.LoadReference(t.Context(), store, ref); err != nil {
		t.Fatal(err)
	}
	if m := update(t, tr, 1, s, 1); m.RefK3 > 1e-7 || math.Abs(m.RefK1) > 1e-6 {
		t.Errorf("divergence of a policy from itself: %v, %v", m.RefK3, m.RefK1)
	}
	for step := range 5 {
		if _, err := tr.SFTStep(t.Context(), s, adam(), constant(step+2)); err != nil {
			t.Fatal(err)
		}
	}
	begin := update(t, tr, 7, s, 1)
	var end rl.TrainMetrics
	for step := range 10 {
		end = update(t, tr, 8+step, s, 1)
	}
	if begin.RefK3 < 0.01 || end.RefK3 > begin.RefK3/2 {
		t.Errorf("divergence went from %v to %v, want less than half", begin.RefK3, end.RefK3)
	}
	if d := math.Abs(begin.Penalty - begin.RefK3); d > 1e-5 || math.Abs(begin.Loss-begin.Penalty) > 1e-5 {
		t.Errorf("penalty %v of loss %v, want the mean estimate %v", begin.Penalty, begin.Loss, begin.RefK3)
	}
}

func TestOverlongTrajectories(t *testing.T) {
	s := samples(5, 40, 4)
	s[1].Truncated = true
	cfg := tinyConfig()
	cfg.Loss.Overlong = config.OverlongMask
	a, b, kept := initialised(t, cfg), initialised(t, cfg), initialised(t, tinyConfig())
	got := update(t, a, 1, s, 1)
	want := update(t, b, 1, append(append([]rl.Sample{}, s[0]), s[2:]...), 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics are not those of a batch without it:\n%s", diff)
	}
	if m := update(t, kept, 1, s, 1); m.LossTokens <= got.LossTokens {
		t.Errorf("%d loss tokens where overlong trajectories are kept, %d where not", m.LossTokens, got.LossTokens)
	}
	before := weights(t, a)
	if m := update(t, a, 2, s[1:2], 1); m.Updates != 0 || math.IsNaN(m.Loss) || distance(before, weights(t, a)) != 0 {
		t.Errorf("a step of overlong trajectories alone: %+v, want no update", m)
	}
}

// TestUncertainTokensTrain: the fraction is of the loss tokens, and all others
// leave no trace in the gradient.
func TestUncertainTokensTrain(t *testing.T) {
	cfg := tinyConfig()
	cfg.Loss.EntropyFraction = 0.25
	s := samples(6, 60, 4)
	tr := initialised(t, cfg)
	m := update(t, tr, 1, s, 1)
	want := 1 - float64(int(0.25*float64(m.LossTokens)))/float64(m.LossTokens)
	if math.Abs(m.Untrained-want) > 1e-6 {
		t.Errorf("%v of the tokens train nothing, want %v", m.Untrained, want)
	}
	all := update(t, initialised(t, tinyConfig()), 1, s, 1)
	if m.Entropy != all.Entropy || m.LossTokens != all.LossTokens || m.GradNorm == all.GradNorm {
		t.Errorf("entropy %v, gradient %v; without selection %v, %v: want the same mean and another gradient", m.Entropy, m.GradNorm, all.Entropy, all.GradNorm)
	}
}

func TestObjectivesThatDivideByTheRolloutNeedIt(t *testing.T) {
	for _, name := range []string{"rollout as old", "sequence correction"} {
		cfg := tinyConfig()
		cfg.Loss = objectives()[name]
		tr := initialised(t, cfg)
		missing, broken := samples(3, 20, 1), samples(3, 20, 1)
		missing[1].RolloutLogprobs = nil
		for p, in := range broken[1].LossMask {
			if in {
				broken[1].RolloutLogprobs[p] = float32(math.Inf(-1))
			}
		}
		for _, s := range [][]rl.Sample{missing, broken} {
			_, err := tr.Update(t.Context(), rl.Batch{Step: 1, Samples: s}, trainer.UpdateOptions{Optimizer: adam(), Position: constant(1)})
			if err == nil || !strings.Contains(err.Error(), "p/1") {
				t.Errorf("%s: got %v, want an error that names the sample", name, err)
			}
		}
	}
}

// TestVocabularyInChunksTrainsTheSame: logits that are never whole give the
// metrics and the gradients of those that are, whatever owns the head.
func TestVocabularyInChunksTrainsTheSame(t *testing.T) {
	t.Parallel()
	for _, tied := range []bool{true, false} {
		for _, l := range []string{"recipe", "entropy", "k3"} {
			cfg := tinyConfig()
			cfg.Model.TieWordEmbeddings, cfg.Loss = tied, objectives()[l]
			chunked := cfg
			chunked.Loss.MaxLogits, chunked.Remat = 1024, true // 2 or 3 entries at a time
			a, b := moved(t, cfg), moved(t, chunked)
			s := samples(7, 60, 3)
			want, got := twice(t, a, s), twice(t, b, s)
			if d := gap(want, got); d > 5e-5 {
				t.Errorf("%s, tied %v: metrics differ by %v:\n%s", l, tied, d, cmp.Diff(want, got))
			}
			x, errA := a.Snapshot(checkpoint.State{})
			y, errB := b.Snapshot(checkpoint.State{})
			if err := errors.Join(errA, errB); err != nil {
				t.Fatal(err)
			}
			if d := distance(x.FirstMoments, y.FirstMoments); d > 2e-5 {
				t.Errorf("%s, tied %v: gradients differ by %v", l, tied, d)
			}
		}
	}
}
