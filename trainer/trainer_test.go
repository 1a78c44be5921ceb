package trainer_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
)

func tinyConfig() trainer.Config {
	return trainer.Config{
		Model: model.Config{
			VocabSize: 37, HiddenSize: 16, IntermediateSize: 24, NumHiddenLayers: 2, NumAttentionHeads: 2, NumKeyValueHeads: 1,
			HeadDim: 8, MaxPositionEmbeddings: 96, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1,
		},
		Seed: 7, MicrobatchTokens: 1 << 14, Temperature: 1, Loss: config.Loss{ClipLow: 0.2, ClipHigh: 0.28},
	}
}

func adam() config.Optimizer {
	return config.Optimizer{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.01, MaxGradNorm: 1, Schedule: "constant"}
}

func constant(step int) trainer.Position { return trainer.Position{Step: step} }

func newTrainer(t testing.TB, cfg trainer.Config) *trainer.Trainer {
	t.Helper()
	tr, err := trainer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

func initialised(t testing.TB, cfg trainer.Config) *trainer.Trainer {
	t.Helper()
	tr := newTrainer(t, cfg)
	if err := tr.Init(1); err != nil {
		t.Fatal(err)
	}
	return tr
}

// samples draws n trajectories of lengths up to most, with prompts and holes in
// the mask like those of tool responses.
func samples(n, most int, seed uint64) []rl.Sample {
	draw := rl.Rand(seed)
	out := make([]rl.Sample, n)
	for i := range out {
		length := most/2 + draw.IntN(most/2) + 1
		s := rl.Sample{ProblemID: "p", Rollout: i, Advantage: float32(draw.NormFloat64()), Tokens: make([]int32, length),
			LossMask: make([]bool, length), RolloutLogprobs: make([]float32, length)}
		for p := range length {
			s.Tokens[p] = int32(draw.IntN(37))
			if p > length/4 && p%7 != 0 {
				s.LossMask[p], s.RolloutLogprobs[p] = true, float32(-3.5-draw.Float64())
			}
		}
		out[i] = s
	}
	return out
}

func update(t testing.TB, tr *trainer.Trainer, step int, s []rl.Sample, minibatches int) rl.TrainMetrics {
	t.Helper()
	m, err := tr.Update(t.Context(), rl.Batch{Step: step, Samples: s},
		trainer.UpdateOptions{Optimizer: adam(), Position: constant(step), NumMinibatches: minibatches})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func weights(t testing.TB, tr *trainer.Trainer) []model.Tensor {
	t.Helper()
	w, err := tr.Weights()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// distance is the largest difference between two sets of weights.
func distance(a, b []model.Tensor) float64 {
	most := 0.0
	for i := range a {
		for j := range a[i].Data {
			most = max(most, math.Abs(float64(a[i].Data[j]-b[i].Data[j])))
		}
	}
	return most
}

// TestTrainingProgresses guards against weights that a backend freezes into a
// graph: the loss must fall and a second graph must see the new weights.
func TestTrainingProgresses(t *testing.T) {
	tr := initialised(t, tinyConfig())
	s := samples(6, 30, 3)
	before, err := tr.Logprobs(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	var first, last rl.TrainMetrics
	for step := range 20 {
		m, err := tr.SFTStep(t.Context(), s, adam(), constant(step+1))
		if err != nil {
			t.Fatal(err)
		}
		if step == 0 {
			first = m
		}
		last = m
	}
	if math.Abs(first.Loss-math.Log(37)) > 0.3 {
		t.Errorf("first loss %v, want about log(vocabulary) = %v", first.Loss, math.Log(37))
	}
	if last.Loss > first.Loss/2 {
		t.Errorf("loss went from %v to %v in 20 steps, want less than half", first.Loss, last.Loss)
	}
	after, err := tr.Logprobs(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	mean := func(lp [][]float32) (sum float64) {
		n := 0
		for i := range s {
			for p, in := range s[i].LossMask {
				if in {
					sum -= float64(lp[i][p])
					n++
				}
			}
		}
		return sum / float64(n)
	}
	if got := mean(before); math.Abs(got-first.Loss) > 1e-5 {
		t.Errorf("Logprobs before training give loss %v, the first step %v", got, first.Loss)
	}
	if got := mean(after); got >= last.Loss {
		t.Errorf("Logprobs after training give loss %v, want less than the last step's %v", got, last.Loss)
	}
}

func TestPolicyGradientMovesTowardsTheGood(t *testing.T) {
	tr := initialised(t, tinyConfig())
	s := samples(2, 30, 5)
	s[0].Advantage, s[1].Advantage = 1, -1
	before, _ := tr.Logprobs(t.Context(), s)
	update(t, tr, 1, s, 1)
	after, _ := tr.Logprobs(t.Context(), s)
	for i, sign := range []float32{1, -1} {
		var gain float32
		for p, in := range s[i].LossMask {
			if in {
				gain += after[i][p] - before[i][p]
			}
		}
		if gain*sign <= 0 {
			t.Errorf("sample with advantage %v: log-probability changed by %v", sign, gain)
		}
	}
}

func TestFirstUpdateIsExactlyOnPolicy(t *testing.T) {
	for _, tokens := range []int{1 << 14, 64} {
		cfg := tinyConfig()
		cfg.MicrobatchTokens = tokens
		tr := initialised(t, cfg)
		s := cut(samples(7, 60, 9), 31)
		m := update(t, tr, 1, s, 1)
		if m.PPOKL != 0 || m.ClipLow != 0 || m.ClipHigh != 0 {
			t.Errorf("%d tokens a microbatch: ppo_kl %v, clip %v %v; want exactly 0", tokens, m.PPOKL, m.ClipLow, m.ClipHigh)
		}
		if m.MismatchKL <= 0 || m.Entropy <= 0 || m.GradNorm <= 0 {
			t.Errorf("mismatch %v, entropy %v, grad norm %v; want more than 0", m.MismatchKL, m.Entropy, m.GradNorm)
		}
		// With ratio 1 the loss is minus the mean advantage.
		var want float64
		for i := range s {
			for _, in := range s[i].LossMask {
				if in {
					want -= float64(s[i].Advantage)
				}
			}
		}
		want /= float64(m.LossTokens)
		if math.Abs(m.Loss-want) > 1e-5 {
			t.Errorf("loss %v, want minus the mean advantage %v", m.Loss, want)
		}
	}
}

func TestMismatchIsZeroForTheTrainersOwnLogprobs(t *testing.T) {
	tr := initialised(t, tinyConfig())
	s := samples(8, 40, 9)
	lp, err := tr.Logprobs(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s {
		s[i].RolloutLogprobs = lp[i]
	}
	if m := update(t, tr, 1, s, 1); m.MismatchKL > 1e-6 {
		t.Errorf("mismatch %v, want 0", m.MismatchKL)
	}
}

func TestMicrobatchesEqualOneBigBatch(t *testing.T) {
	s := samples(11, 96, 21)
	for i := range s {
		cut(s[i:i+1], 34+i)
	}
	whole := tinyConfig()
	whole.LaneTokens = whole.MicrobatchTokens
	big := initialised(t, whole)
	want := update(t, big, 1, s, 1)
	if big.NumGraphs() != 1 {
		t.Fatalf("%d graphs for one microbatch, want 1", big.NumGraphs())
	}
	for _, tokens := range []int{1, 100, 256} {
		cfg := tinyConfig()
		cfg.MicrobatchTokens = tokens
		small := initialised(t, cfg)
		got := update(t, small, 1, s, 1)
		if math.Abs(got.Loss-want.Loss) > 1e-5 || math.Abs(got.GradNorm-want.GradNorm) > 1e-5 || math.Abs(got.Entropy-want.Entropy) > 1e-5 {
			t.Errorf("%d tokens a microbatch: %+v, want %+v", tokens, got, want)
		}
		if got.LossTokens != want.LossTokens || got.Tokens != want.Tokens || got.Updates != 1 {
			t.Errorf("%d tokens a microbatch: counts %+v, want %+v", tokens, got, want)
		}
		// AdamW divides by sqrt(v), which turns the rounding of tiny gradients into
		// differences up to the learning rate, so the first moments are compared.
		a, errA := big.Snapshot(checkpoint.State{})
		b, errB := small.Snapshot(checkpoint.State{})
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if d := distance(a.FirstMoments, b.FirstMoments); d > 1e-7 {
			t.Errorf("%d tokens a microbatch: gradients differ by %v", tokens, d)
		}
	}
}

func TestPaddingContributesNothing(t *testing.T) {
	short := samples(1, 20, 2)
	alone := initialised(t, tinyConfig())
	want := update(t, alone, 1, short, 1)
	// A long row with one early token in the loss pads the short one in its microbatch.
	long := rl.Sample{ProblemID: "long", Tokens: make([]int32, 90), LossMask: make([]bool, 90), RolloutLogprobs: make([]float32, 90)}
	long.LossMask[80] = true
	both := initialised(t, tinyConfig())
	got := update(t, both, 1, append(short, long), 1)
	n := float64(want.LossTokens)
	if math.Abs(got.Loss*(n+1)-want.Loss*n) > 1e-5 {
		t.Errorf("sum of losses %v, want %v", got.Loss*(n+1), want.Loss*n)
	}
	if got.LossTokens != want.LossTokens+1 || got.Tokens != want.Tokens+80 {
		t.Errorf("counts %+v, want one loss token and 80 tokens more than %+v", got, want)
	}
}

func TestTailAndUnmaskedSamplesAreFree(t *testing.T) {
	s := samples(3, 40, 4)
	a := initialised(t, tinyConfig())
	want := update(t, a, 1, s, 1)
	// Tokens after the last one in the loss, and samples without any, change nothing.
	s[1].Tokens = append(s[1].Tokens, 1, 2, 3)
	s[1].LossMask = append(s[1].LossMask, false, false, false)
	s[1].RolloutLogprobs = append(s[1].RolloutLogprobs, 0, 0, 0)
	s = append(s, rl.Sample{Tokens: make([]int32, 50), LossMask: make([]bool, 50), Advantage: 3})
	b := initialised(t, tinyConfig())
	if diff := cmp.Diff(want, update(t, b, 1, s, 1)); diff != "" {
		t.Errorf("metrics changed:\n%s", diff)
	}
	if d := distance(weights(t, a), weights(t, b)); d != 0 {
		t.Errorf("weights differ by %v", d)
	}
}

// TestMinibatches: the later updates of a step measure their ratio against the
// policy before the first.
func TestMinibatches(t *testing.T) {
	s := samples(12, 40, 8)
	tr := initialised(t, tinyConfig())
	m := update(t, tr, 1, s, 3)
	if m.Updates != 3 || tr.Counters().Updates != 3 {
		t.Errorf("%d updates, counter %d; want 3", m.Updates, tr.Counters().Updates)
	}
	if m.PPOKL == 0 {
		t.Error("ppo_kl is 0: the later minibatches were measured against themselves")
	}
	one := initialised(t, tinyConfig())
	if w := update(t, one, 1, s, 1); w.LossTokens != m.LossTokens || w.Tokens != m.Tokens || math.Abs(w.MismatchKL-m.MismatchKL) > 1e-5 {
		t.Errorf("3 minibatches count %+v, one counts %+v", m, w)
	}
}

// TestDeterminism runs at a size at which the backend spreads operations over
// its threads.
func TestDeterminism(t *testing.T) {
	t.Parallel()
	cfg := tinyConfig()
	cfg.Model.HiddenSize, cfg.Model.HeadDim, cfg.Model.IntermediateSize = 64, 32, 192
	cfg.MicrobatchTokens = 512
	run := func() ([]model.Tensor, []rl.TrainMetrics) {
		tr := initialised(t, cfg)
		var all []rl.TrainMetrics
		for step := 1; step <= 3; step++ {
			all = append(all, update(t, tr, step, samples(16, 90, uint64(step)), 2))
		}
		return weights(t, tr), all
	}
	wa, ma := run()
	wb, mb := run()
	if diff := cmp.Diff(ma, mb); diff != "" {
		t.Errorf("metrics of two equal runs differ:\n%s", diff)
	}
	if d := distance(wa, wb); d != 0 {
		t.Errorf("weights of two equal runs differ by %v", d)
	}
}

func TestContinuationAfterRestoreIsBitExact(t *testing.T) {
	store := memblob.New()
	straight := initialised(t, tinyConfig())
	var want []rl.TrainMetrics
	for step := 1; step <= 4; step++ {
		want = append(want, update(t, straight, step, samples(6, 40, uint64(step)), 1))
		if step == 2 {
			if _, err := straight.Save(t.Context(), store, "ckpt", step); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := checkpoint.List(t.Context(), store, "ckpt")
	if err != nil || len(entries) != 1 {
		t.Fatalf("checkpoints %v, error %v; want one", entries, err)
	}
	resumed := newTrainer(t, tinyConfig())
	step, err := resumed.Restore(t.Context(), store, entries[0].Ref)
	if err != nil || step != 2 {
		t.Fatalf("restored step %d, error %v; want 2", step, err)
	}
	var got []rl.TrainMetrics
	for step := 3; step <= 4; step++ {
		got = append(got, update(t, resumed, step, samples(6, 40, uint64(step)), 1))
	}
	if diff := cmp.Diff(want[2:], got); diff != "" {
		t.Errorf("metrics after the restore differ:\n%s", diff)
	}
	if d := distance(weights(t, straight), weights(t, resumed)); d != 0 {
		t.Errorf("weights differ by %v after the restore", d)
	}
	if straight.Counters() != resumed.Counters() {
		t.Errorf("counters %+v, want %+v", resumed.Counters(), straight.Counters())
	}
}

// cut shortens all samples to n tokens, so that they fit one microbatch without padding.
func cut(s []rl.Sample, n int) []rl.Sample {
	for i := range s {
		s[i].Tokens, s[i].LossMask, s[i].RolloutLogprobs = s[i].Tokens[:n], s[i].LossMask[:n], s[i].RolloutLogprobs[:n]
	}
	return s
}

func TestDivergenceLeavesTheStateAlone(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		tokens, minibatches int
		advantage           float32 // 3e38 overflows in the loss, 3e30 in the norm of the gradients
	}{
		"norm, one microbatch":    {1 << 14, 1, 3e30},
		"norm, many microbatches": {16, 1, 3e30},
		"norm, many minibatches":  {64, 3, 3e30},
		"loss, one microbatch":    {1 << 14, 1, 3e38},
		"loss, many microbatches": {16, 1, 3e38},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := tinyConfig()
			cfg.MicrobatchTokens = row.tokens
			tr := initialised(t, cfg)
			update(t, tr, 1, cut(samples(6, 40, 3), 17), 1)
			if row.tokens == 1<<14 && tr.NumGraphs() != 1 {
				t.Fatalf("%d graphs for one microbatch, want 1", tr.NumGraphs())
			}
			before, err := tr.Snapshot(checkpoint.State{})
			if err != nil {
				t.Fatal(err)
			}
			bad := cut(samples(6, 40, 4), 17)
			for i := range bad {
				bad[i].Advantage = row.advantage
			}
			_, err = tr.Update(t.Context(), rl.Batch{Step: 2, Samples: bad},
				trainer.UpdateOptions{Optimizer: adam(), Position: constant(2), NumMinibatches: row.minibatches})
			if !errors.Is(err, trainer.ErrDiverged) {
				t.Fatalf("error %v, want ErrDiverged", err)
			}
			after, err := tr.Snapshot(checkpoint.State{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Error("the state changed")
			}
			update(t, tr, 2, cut(samples(6, 40, 3), 17), 1)
		})
	}
}

// countdown is a context that ends when it has been asked often enough.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestCancelledStepChangesNothing cancels a step of two updates at each place
// where it looks at its context.
func TestCancelledStepChangesNothing(t *testing.T) {
	cfg := tinyConfig()
	cfg.MicrobatchTokens = 64
	tr := initialised(t, cfg)
	update(t, tr, 1, samples(2, 40, 2), 1) // or there were no moments to change
	before, err := tr.Snapshot(checkpoint.State{})
	if err != nil {
		t.Fatal(err)
	}
	batch := rl.Batch{Step: 2, Samples: samples(6, 40, 3)}
	for asked := range 100 {
		_, err := tr.Update(&countdown{Context: t.Context(), left: asked}, batch,
			trainer.UpdateOptions{Optimizer: adam(), Position: constant(1), NumMinibatches: 2})
		if err == nil {
			if asked < 6 {
				t.Errorf("a step of 9 passes looked at its context %d times", asked)
			}
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want context.Canceled", err)
		}
		after, err := tr.Snapshot(checkpoint.State{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("cancelled at look %d: the state changed", asked)
		}
	}
	t.Error("the step never ended")
}

func TestPublishedPolicyIsThePolicy(t *testing.T) {
	store := memblob.New()
	tr := initialised(t, tinyConfig())
	s := samples(4, 30, 3)
	update(t, tr, 1, s, 1)
	ref, err := tr.Publish(t.Context(), store, "policies/v1", checkpoint.Policy{Tokenizer: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	policy, err := checkpoint.LoadWeights(t.Context(), store, ref)
	if err != nil {
		t.Fatal(err)
	}
	if policy.Model != tr.Model() {
		t.Errorf("model %+v, want %+v", policy.Model, tr.Model())
	}
	other := newTrainer(t, tinyConfig())
	if err := other.Import(policy.Weights); err != nil {
		t.Fatal(err)
	}
	want, errA := tr.Logprobs(t.Context(), s)
	got, errB := other.Logprobs(t.Context(), s)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log-probabilities of the published policy differ:\n%s", diff)
	}
}

func TestGraphsAreBounded(t *testing.T) {
	t.Parallel()
	cfg := tinyConfig()
	cfg.MicrobatchTokens = 256
	tr := initialised(t, cfg)
	for step := 1; step <= 12; step++ {
		update(t, tr, step, samples(1+step, 20+6*step, uint64(step)), 1)
	}
	once := tr.NumGraphs()
	for step := 1; step <= 12; step++ {
		update(t, tr, step, samples(1+step, 20+6*step, uint64(step)), 1)
	}
	if tr.NumGraphs() != once || once > cfg.MaxGraphs() {
		t.Errorf("%d graphs, after the same shapes again %d, bound %d", once, tr.NumGraphs(), cfg.MaxGraphs())
	}
}

func TestNoStateNoTraining(t *testing.T) {
	tr := newTrainer(t, tinyConfig())
	if _, err := tr.SFTStep(t.Context(), samples(2, 20, 1), adam(), constant(1)); !errors.Is(err, trainer.ErrNoState) {
		t.Errorf("SFTStep: %v, want ErrNoState", err)
	}
	if _, err := tr.Logprobs(t.Context(), samples(2, 20, 1)); !errors.Is(err, trainer.ErrNoState) {
		t.Errorf("Logprobs: %v, want ErrNoState", err)
	}
	if _, err := tr.Snapshot(checkpoint.State{}); !errors.Is(err, trainer.ErrNoState) {
		t.Errorf("Snapshot: %v, want ErrNoState", err)
	}
}

func TestBadSamplesAreNamed(t *testing.T) {
	tr := initialised(t, tinyConfig())
	for want, spoil := range map[string]func(*rl.Sample){
		"sample 1 (p/1): token 37 at position 3 is outside the vocabulary of 37":  func(s *rl.Sample) { s.Tokens[3] = 37 },
		"sample 1 (p/1): the first token is in the loss, but nothing predicts it": func(s *rl.Sample) { s.LossMask[0] = true },
		"sample 1 (p/1): advantage is NaN":                                        func(s *rl.Sample) { s.Advantage = float32(math.NaN()) },
	} {
		s := samples(2, 20, 1)
		spoil(&s[1])
		_, err := tr.Update(t.Context(), rl.Batch{Step: 4, Samples: s}, trainer.UpdateOptions{Optimizer: adam(), Position: constant(1)})
		if err == nil || err.Error() != "update of step 4: "+want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestRematChangesNothing: recomputed activations must give the same gradients.
func TestRematChangesNothing(t *testing.T) {
	s := samples(5, 40, 6)
	plain := initialised(t, tinyConfig())
	cfg := tinyConfig()
	cfg.Remat = true
	remat := initialised(t, cfg)
	a, b := update(t, plain, 1, s, 1), update(t, remat, 1, s, 1)
	if math.Abs(a.Loss-b.Loss) > 1e-6 || math.Abs(a.GradNorm-b.GradNorm) > 1e-6 {
		t.Errorf("loss %v and gradient norm %v, want %v and %v", b.Loss, b.GradNorm, a.Loss, a.GradNorm)
	}
	x, errA := plain.Snapshot(checkpoint.State{})
	y, errB := remat.Snapshot(checkpoint.State{})
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if d := distance(x.FirstMoments, y.FirstMoments); d > 1e-7 {
		t.Errorf("gradients differ by %v", d)
	}
}

// TestScores: the entropy of the tokens of a batch is the one that its update reports, the
// log-probabilities are those of Logprobs, and asking changes no bit of the update.
func TestScores(t *testing.T) {
	s, cfg := samples(4, 25, 3), tinyConfig()
	cfg.Entropies = true
	asked, plain := initialised(t, cfg), initialised(t, tinyConfig())
	if _, _, err := plain.Scores(t.Context(), s); err == nil {
		t.Error("a trainer that was not built for entropies gives some")
	}
	logprobs, entropies, err := asked.Scores(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	want, err := plain.Logprobs(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	sum, n := 0.0, 0
	for i := range s {
		if !slices.Equal(logprobs[i], want[i]) {
			t.Errorf("sample %d: log-probabilities differ", i)
		}
		for p, in := range s[i].LossMask {
			if in {
				sum, n = sum+float64(entropies[i][p]), n+1
			}
		}
	}
	update := trainer.UpdateOptions{Optimizer: adam(), Position: constant(1)}
	a, errA := asked.Update(t.Context(), rl.Batch{Step: 1, Samples: s}, update)
	b, errB := plain.Update(t.Context(), rl.Batch{Step: 1, Samples: s}, update)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if math.Abs(sum/float64(n)-a.Entropy) > 1e-5 || a.Entropy <= 0 {
		t.Errorf("mean entropy %v, the update reports %v", sum/float64(n), a.Entropy)
	}
	if a != b {
		t.Errorf("the update after the question: %+v, without it: %+v", a, b)
	}
	x, errA := asked.Weights()
	y, errB := plain.Weights()
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	for i := range x {
		if !slices.Equal(x[i].Data, y[i].Data) {
			t.Errorf("%s differs", x[i].Name)
		}
	}
}
