package trainer_test

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
)

func snapshot(t testing.TB, tr *trainer.Trainer) checkpoint.State {
	t.Helper()
	s, err := tr.Snapshot(checkpoint.State{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bits lists every bit of a state by tensor, so that NaN equals itself and -0
// differs from 0.
func bits(s checkpoint.State) map[string][]uint32 {
	out := map[string][]uint32{}
	for _, w := range s.Weights {
		out["weight of "+w.Name] = floatBits(w.Data)
	}
	for _, w := range s.FirstMoments {
		out["first moment of "+w.Name] = floatBits(w.Data)
	}
	for _, w := range s.SecondMoments {
		out["second moment of "+w.Name] = floatBits(w.Data)
	}
	return out
}

func floatBits(data []float32) []uint32 {
	out := make([]uint32, len(data))
	for i, x := range data {
		out[i] = math.Float32bits(x)
	}
	return out
}

// sameState compares two states bit for bit, with their counters.
func sameState(t testing.TB, what string, got, want checkpoint.State) {
	t.Helper()
	if diff := cmp.Diff(got.Counters, want.Counters); diff != "" {
		t.Errorf("%s: counters (-got +want):\n%s", what, diff)
	}
	g, w := bits(got), bits(want)
	if len(g) != len(w) {
		t.Errorf("%s: %d tensors, want %d", what, len(g), len(w))
	}
	for name := range w {
		if !cmp.Equal(g[name], w[name]) {
			t.Errorf("%s: %s differs", what, name)
		}
	}
}

// frozenAdam has every switch of the optimizer on.
func frozenAdam() config.Optimizer {
	o := adam()
	o.Schedule, o.WarmupSteps, o.DecaySteps, o.MinLRRatio = config.ScheduleWSD, 3, 4, 0.1
	o.DecayVectors, o.MaxGradNorm, o.SkipGradNorm, o.Freeze = true, 0.5, 1e6, []string{"model.embed_tokens*"}
	return o
}

// TestTenStepsEqualFiveAndFive: a run that is saved, dropped and restored in the
// middle ends in the same bits, moments and schedule included.
func TestTenStepsEqualFiveAndFive(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]config.Optimizer{"plain": adam(), "every switch": frozenAdam()} {
		t.Run(name, func(t *testing.T) {
			store := memblob.New()
			run := func(tr *trainer.Trainer, from, to int) (all []rl.TrainMetrics) {
				for step := from; step <= to; step++ {
					m, err := tr.Update(t.Context(), rl.Batch{Step: step, Samples: samples(6, 40, uint64(step))},
						trainer.UpdateOptions{Optimizer: o, Position: trainer.Position{Step: step, Total: 10}, NumMinibatches: 2})
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, m)
				}
				return all
			}
			straight := initialised(t, tinyConfig())
			want := run(straight, 1, 10)

			first := initialised(t, tinyConfig())
			got := run(first, 1, 5)
			ref, err := first.Save(t.Context(), store, "ckpt", 5)
			if err != nil {
				t.Fatal(err)
			}
			second := newTrainer(t, tinyConfig())
			if _, err := second.Restore(t.Context(), store, ref); err != nil {
				t.Fatal(err)
			}
			got = append(got, run(second, 6, 10)...)
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("metrics (-got +want):\n%s", diff)
			}
			sameState(t, "after ten steps", snapshot(t, second), snapshot(t, straight))
		})
	}
}

// TestResetOptimizer: what follows a reset is what follows the same weights in a
// new trainer.
func TestResetOptimizer(t *testing.T) {
	tr, fresh := initialised(t, tinyConfig()), newTrainer(t, tinyConfig())
	s := samples(4, 30, 3)
	update(t, tr, 1, s, 1)
	before := weights(t, tr)
	if err := tr.ResetOptimizer(); err != nil {
		t.Fatal(err)
	}
	if c := tr.Counters(); c.Updates != 0 || c.TotalUpdates != 1 {
		t.Errorf("counters %+v, want 0 updates of 1 in total", c)
	}
	if d := distance(before, weights(t, tr)); d != 0 {
		t.Errorf("weights moved by %v", d)
	}
	if err := fresh.Import(before); err != nil {
		t.Fatal(err)
	}
	update(t, tr, 2, s, 1)
	update(t, fresh, 2, s, 1)
	got, want := snapshot(t, tr), snapshot(t, fresh)
	want.Counters.TotalUpdates++
	sameState(t, "after the reset", got, want)
}

// TestSnapshotTakesItsRoom: a snapshot in the memory of an earlier one has the
// same bits as one in its own, also when the room does not fit.
func TestSnapshotTakesItsRoom(t *testing.T) {
	tr := initialised(t, tinyConfig())
	begin := snapshot(t, tr) // has no moments
	update(t, tr, 1, samples(4, 30, 3), 1)
	first, err := tr.Snapshot(begin)
	if err != nil {
		t.Fatal(err)
	}
	sameState(t, "with room for weights alone", first, snapshot(t, tr))
	update(t, tr, 2, samples(4, 30, 4), 1)
	room := first.SecondMoments[3].Data
	first.Weights[1].Data = first.Weights[1].Data[1:] // no room any more
	second, err := tr.Snapshot(first)
	if err != nil {
		t.Fatal(err)
	}
	sameState(t, "with room", second, snapshot(t, tr))
	if &second.SecondMoments[3].Data[0] != &room[0] {
		t.Error("the snapshot has taken new memory")
	}
	update(t, tr, 3, samples(4, 30, 5), 1)
	kept := second.Weights[0].Data[0]
	if now := snapshot(t, tr); now.Weights[0].Data[0] == kept || second.Weights[0].Data[0] != kept {
		t.Error("a snapshot changes with the trainer")
	}
}

// TestSameSeedSameBits: neither the number of threads nor chance is in the
// result, at a size at which the backend spreads operations over its threads.
func TestSameSeedSameBits(t *testing.T) {
	t.Parallel()
	cfg := tinyConfig()
	cfg.Model.HiddenSize, cfg.Model.HeadDim, cfg.Model.IntermediateSize = 64, 32, 192
	cfg.MicrobatchTokens = 512
	run := func(procs int) checkpoint.State {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		tr := initialised(t, cfg)
		for step := 1; step <= 2; step++ {
			update(t, tr, step, samples(12, 90, uint64(step)), 2)
		}
		return snapshot(t, tr)
	}
	sameState(t, "two threads", run(2), run(1))
}

// TestRestoreRefusesMomentsThatDoNotFit: a moment that is missing is no zero.
func TestRestoreRefusesMomentsThatDoNotFit(t *testing.T) {
	tr := initialised(t, tinyConfig())
	update(t, tr, 1, samples(4, 30, 3), 1)
	whole := snapshot(t, tr)
	for want, spoil := range map[string]func(*checkpoint.State){
		"moments of model.norm.weight: 16 and 0 values, want 16": func(s *checkpoint.State) { s.SecondMoments = s.SecondMoments[:len(s.SecondMoments)-1] },
		"moments of 0 and 0 tensors after 1 updates":             func(s *checkpoint.State) { s.FirstMoments, s.SecondMoments = nil, nil },
		"moments of 24 and 24 tensors after 1 updates, 23 of them of this model": func(s *checkpoint.State) {
			s.FirstMoments, s.SecondMoments = zeros(s.FirstMoments), zeros(s.SecondMoments)
			s.FirstMoments[0].Name, s.SecondMoments[0].Name = "stranger", "stranger"
		},
	} {
		state := whole
		spoil(&state)
		if err := tr.RestoreState(state); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := tr.RestoreState(whole); err != nil {
		t.Fatal(err)
	}
	sameState(t, "restored", snapshot(t, tr), whole)
}
