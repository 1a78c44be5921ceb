//go:build onnx

package device_test

import (
	"math"
	"os"
	"testing"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/device"
	"temper/trainer/model"
)

// Bounds between the Go backend and ONNX Runtime on the CPU, both in float32: a
// few roundings for log-probabilities of about -4, and a small part of the
// learning rate for a weight after one update by AdamW.
const (
	logprobBound = 5e-6
	weightBound  = 0.02 // of the learning rate
)

// TestONNXRuntimeTrains scores and updates one model on both backends. It needs
// TEMPER_ONNXRUNTIME, the absolute path of libonnxruntime.so.
func TestONNXRuntimeTrains(t *testing.T) {
	library := os.Getenv("TEMPER_ONNXRUNTIME")
	if library == "" {
		t.Skip("TEMPER_ONNXRUNTIME names no library (2026-11-21: not part of the repository)")
	}
	name := "onnx:" + library
	backend, err := device.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(backend.Description())
	backend.Finalize()

	scored := rl.Sample{ProblemID: "p"}
	draw := rl.Rand(5)
	for p := range 48 {
		scored.Tokens = append(scored.Tokens, int32(draw.IntN(small().VocabSize)))
		scored.LossMask = append(scored.LossMask, p > 0)
	}
	samples := []rl.Sample{scored, scored}
	const lr = 1e-3
	run := func(name string) (before, after [][]float32, m rl.TrainMetrics, w []model.Tensor) {
		tr, err := trainer.New(trainer.Config{Backend: name, Model: small(), MicrobatchTokens: 4096, Temperature: 1,
			Loss: config.Loss{ClipLow: 0.2, ClipHigh: 0.28}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tr.Close)
		if err := tr.Init(1); err != nil {
			t.Fatal(err)
		}
		if before, err = tr.Logprobs(t.Context(), samples); err != nil {
			t.Fatal(err)
		}
		o := config.Optimizer{LR: lr, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, MaxGradNorm: 1, Schedule: "constant"}
		if m, err = tr.SFTStep(t.Context(), samples, o, trainer.Position{Step: 1}); err != nil {
			t.Fatal(err)
		}
		if after, err = tr.Logprobs(t.Context(), samples); err != nil {
			t.Fatal(err)
		}
		if w, err = tr.Weights(); err != nil {
			t.Fatal(err)
		}
		return before, after, m, w
	}
	before1, after1, m1, w1 := run("go")
	before2, after2, m2, w2 := run(name)
	forward, update := worst(before1, before2), worst(after1, after2)
	moved := worst(before1, after1)
	weights, over, total := 0.0, 0, 0
	for i := range w1 {
		for j := range w1[i].Data {
			d := math.Abs(float64(w1[i].Data[j] - w2[i].Data[j]))
			weights = max(weights, d)
			if total++; d > weightBound*lr {
				over++
			}
		}
	}
	t.Logf("log-probabilities: %.2g before, %.2g after an update that moves them by %.2g; loss %.9g and %.9g; gradient norm %.9g and %.9g; weights %.2g, %d of %d over %g of the learning rate",
		forward, update, moved, m1.Loss, m2.Loss, m1.GradNorm, m2.GradNorm, weights, over, total, weightBound)
	if forward > logprobBound || update > 4*logprobBound {
		t.Errorf("log-probabilities differ by %v before and %v after, want at most %v and %v", forward, update, logprobBound, 4*logprobBound)
	}
	if moved < 1e-3 {
		t.Errorf("the update moved the log-probabilities by %v: the weights are frozen", moved)
	}
	// The first update of AdamW is a sign: where a gradient is almost zero it may turn.
	if over > total/1000 {
		t.Errorf("%d of %d weights differ by more than %v, want at most one in a thousand", over, total, weightBound*lr)
	}
}

// worst is the largest difference.
func worst(a, b [][]float32) float64 {
	most := 0.0
	for i := range a {
		for j := range a[i] {
			most = max(most, math.Abs(float64(a[i][j]-b[i][j])))
		}
	}
	return most
}
