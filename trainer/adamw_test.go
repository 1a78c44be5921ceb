package trainer_test

import (
	"math"
	"slices"
	"testing"

	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
)

// TestAdamWByHand recomputes two updates on the host. The gradient is read off
// the first moment: after one update from zero it is (1-beta1) times the
// clipped gradient.
func TestAdamWByHand(t *testing.T) {
	o := adam()
	o.LR, o.WeightDecay, o.MaxGradNorm = 0.01, 0.5, 0.25
	tr := initialised(t, tinyConfig())
	step := func(n int) rl.TrainMetrics {
		m, err := tr.Update(t.Context(), rl.Batch{Step: n, Samples: samples(4, 30, uint64(n))},
			trainer.UpdateOptions{Optimizer: o, Position: constant(n)})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	before, err := tr.Snapshot(checkpoint.State{})
	if err != nil {
		t.Fatal(err)
	}
	if len(before.FirstMoments)+len(before.SecondMoments) != 0 {
		t.Error("moments before the first update")
	}
	before.FirstMoments, before.SecondMoments = zeros(before.Weights), zeros(before.Weights)
	for n := 1; n <= 2; n++ {
		norm := step(n).GradNorm
		after, err := tr.Snapshot(checkpoint.State{})
		if err != nil {
			t.Fatal(err)
		}
		squares, worst := 0.0, 0.0
		for i, w := range before.Weights {
			decay := o.WeightDecay
			if len(w.Shape) == 1 || w.Name == "model.embed_tokens.weight" {
				decay = 0
			}
			for j := range w.Data {
				m, v, x := float64(before.FirstMoments[i].Data[j]), float64(before.SecondMoments[i].Data[j]), float64(w.Data[j])
				m1, v1 := float64(after.FirstMoments[i].Data[j]), float64(after.SecondMoments[i].Data[j])
				g := (m1 - o.Beta1*m) / (1 - o.Beta1)
				squares += g * g
				if want := o.Beta2*v + (1-o.Beta2)*g*g; math.Abs(v1-want) > 1e-9+1e-4*want {
					t.Fatalf("%s[%d]: second moment %v, want %v", w.Name, j, v1, want)
				}
				mHat, vHat := m1/(1-math.Pow(o.Beta1, float64(n))), v1/(1-math.Pow(o.Beta2, float64(n)))
				want := x - o.LR*(mHat/(math.Sqrt(vHat)+o.Eps)+decay*x)
				worst = max(worst, math.Abs(float64(after.Weights[i].Data[j])-want))
			}
		}
		if worst > 1e-6 {
			t.Errorf("update %d: weights are off by %v", n, worst)
		}
		if norm <= o.MaxGradNorm {
			t.Fatalf("gradient norm %v does not exceed the limit %v: the test has no teeth", norm, o.MaxGradNorm)
		}
		if got := math.Sqrt(squares); math.Abs(got-o.MaxGradNorm) > 1e-4 {
			t.Errorf("update %d: norm after clipping %v, want %v", n, got, o.MaxGradNorm)
		}
		before = after
	}
}

// zeros returns tensors of the same names and shapes without values.
func zeros(like []model.Tensor) []model.Tensor {
	out := slices.Clone(like)
	for i := range out {
		out[i].Data = make([]float32, len(out[i].Data))
	}
	return out
}

// TestGradientMatchesFiniteDifferences checks the whole chain, network to loss,
// on a few weights of each tensor.
func TestGradientMatchesFiniteDifferences(t *testing.T) {
	const h = 2e-2
	o := adam()
	o.MaxGradNorm = 0
	s := samples(2, 20, 5)
	cfg := tinyConfig()
	cfg.Model.NumHiddenLayers = 1
	tr := initialised(t, cfg)
	start := weights(t, tr)
	loss := func(w []model.Tensor) (float64, []model.Tensor) {
		if err := tr.Import(w); err != nil {
			t.Fatal(err)
		}
		m, err := tr.SFTStep(t.Context(), s, o, constant(1))
		if err != nil {
			t.Fatal(err)
		}
		after, err := tr.Snapshot(checkpoint.State{})
		if err != nil {
			t.Fatal(err)
		}
		return m.Loss, after.FirstMoments
	}
	_, moments := loss(start)
	for i, w := range start {
		for _, j := range []int{len(w.Data) / 3, len(w.Data) - 1} {
			at := w.Data[j]
			w.Data[j] = at + h
			up, _ := loss(start)
			w.Data[j] = at - h
			down, _ := loss(start)
			w.Data[j] = at
			want, got := (up-down)/(2*h), float64(moments[i].Data[j])/(1-o.Beta1)
			if math.Abs(got-want) > 2e-4+0.05*math.Abs(want) {
				t.Errorf("%s[%d]: gradient %v, finite difference %v", w.Name, j, got, want)
			}
		}
	}
}
