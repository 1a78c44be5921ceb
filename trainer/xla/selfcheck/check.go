// Package selfcheck finds out whether a backend computes the same as the Go backend, before a
// role depends on it: it makes a few updates of a small policy and a short generation on both.
// A plugin that does not fit this binary may end the process or corrupt its memory, so Child
// does that in another process.
//
// Invariant: a backend that passes has trained and decoded, and each of its numbers is within
// a stated bound of the Go backend's.
package selfcheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"temper/internal/config"
	"temper/internal/inference"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/device"
	"temper/trainer/engine"
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
)

// Bounds of the differences to the Go backend, both in float32. A log-probability is about
// -4. GPUs use TF32 for products, with 10 bits, unless tf32=false is set.
const (
	LogprobBound = 2e-2
	LossBound    = 1e-2
	// WeightBound bounds the norm of the difference of weights, as a share of their movement.
	WeightBound = 0.1
)

// Report is the result of a check.
type Report struct {
	Backend     string  `json:"backend"`
	Mesh        string  `json:"mesh,omitempty"`
	Description string  `json:"description"`
	NumDevices  int     `json:"num_devices"`
	Loss        float64 `json:"loss"`    // of the last update
	LossGo      float64 `json:"loss_go"` // of the same update on the Go backend
	// Logprobs and Generated are the largest differences of a log-probability: of given tokens
	// after the updates, and of the greedy generation before them.
	Logprobs  float64 `json:"logprobs"`
	Generated float64 `json:"generated"`
	// Weights is the distance of the weights after the updates, as a share of their movement.
	Weights float64 `json:"weights"`
	Graphs  int     `json:"graphs"`
	Seconds float64 `json:"seconds"`
}

// numUpdates is enough to detect a plugin that writes past its buffers.
const numUpdates = 3

// Run checks a backend, over a mesh if that has several devices. With a difference beyond the
// bounds it returns both the report and an error.
func Run(ctx context.Context, backend string, mesh device.Mesh) (Report, error) {
	r := Report{Backend: backend}
	if mesh.Several() {
		r.Mesh = mesh.String()
	}
	b, err := device.Open(backend)
	if err != nil {
		return r, err
	}
	r.Description, r.NumDevices = b.Description(), b.NumDevices()
	b.Finalize()
	begin := time.Now()
	if r.NumDevices < mesh.NumDevices() {
		return r, fmt.Errorf("mesh %v: %d devices, the backend %s drives %d: %w", mesh, mesh.NumDevices(), backend, r.NumDevices, device.ErrNoDevice)
	}
	network := small(mesh)
	want, err := try(ctx, network, device.DefaultName, device.Mesh{})
	if err != nil {
		return r, err
	}
	got, err := try(ctx, network, backend, mesh)
	if err != nil {
		return r, fmt.Errorf("backend %q: %w", backend, err)
	}
	r.Seconds, r.Graphs = time.Since(begin).Seconds(), got.graphs
	r.Loss, r.LossGo = got.loss, want.loss
	r.Logprobs = worst(got.logprobs, want.logprobs)
	r.Generated = worst([][]float32{got.generation.Logprobs}, [][]float32{want.generation.Logprobs})
	r.Weights = distance(got.after, want.after) / distance(want.after, want.before)
	return r, r.judge(got.generation.Tokens, want.generation.Tokens)
}

// judge returns an error with all differences beyond their bounds.
func (r Report) judge(tokens, want []int32) error {
	var wrong []string
	beyond := func(what string, value, bound float64) {
		if !(value <= bound) { // NaN is beyond the bound
			wrong = append(wrong, fmt.Sprintf("%s %.2g, want at most %.2g", what, value, bound))
		}
	}
	beyond("loss", math.Abs(r.Loss-r.LossGo), LossBound)
	beyond("log-probabilities", r.Logprobs, LogprobBound)
	beyond("log-probabilities of a generation", r.Generated, LogprobBound)
	beyond("weights", r.Weights, WeightBound)
	if fmt.Sprint(tokens) != fmt.Sprint(want) {
		wrong = append(wrong, fmt.Sprintf("greedy tokens %v, want %v", tokens, want))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("backend %q computes something else than the backend go: differences of %s", r.Backend, strings.Join(wrong, "; "))
	}
	return nil
}

// small is a network that any mesh of up to four devices divides.
func small(mesh device.Mesh) model.Config {
	over := func(n, axis int) int {
		whole := n
		for whole%max(1, axis) != 0 {
			whole += n
		}
		return whole
	}
	heads := over(4, mesh.Model)
	return model.Config{
		VocabSize: over(64, mesh.Model), HiddenSize: over(32, mesh.Data), IntermediateSize: over(48, mesh.Model), NumHiddenLayers: 1,
		NumAttentionHeads: heads, NumKeyValueHeads: heads,
		HeadDim: 8, MaxPositionEmbeddings: 64, RopeTheta: 1e4, RMSNormEps: 1e-6, InitializerRange: 0.2,
	}
}

// outcome is the result of one backend.
type outcome struct {
	before, after []tensor.Named
	loss          float64
	logprobs      [][]float32
	generation    inference.Generation
	graphs        int
}

// try decodes, trains and scores on one backend.
func try(ctx context.Context, network model.Config, backend string, mesh device.Mesh) (o outcome, err error) {
	if o.before, err = model.InitialTensors(network, 1); err != nil {
		return o, err
	}
	if o.generation, err = generate(ctx, network, backend, o.before); err != nil {
		return o, fmt.Errorf("decode: %w", err)
	}
	t, err := trainer.New(trainer.Config{
		Backend: backend, Mesh: mesh, Model: network, MicrobatchTokens: 256, Temperature: 1, Loss: config.Loss{ClipLow: 0.2, ClipHigh: 0.28},
	})
	if err != nil {
		return o, err
	}
	defer t.Close()
	if err := t.Import(o.before); err != nil {
		return o, err
	}
	batch := rl.Batch{Step: 1, Samples: samples()}
	adam := config.Optimizer{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-3, MaxGradNorm: 1, Schedule: "constant"}
	for i := range numUpdates {
		m, err := t.Update(ctx, batch, trainer.UpdateOptions{Optimizer: adam, NumMinibatches: 1, Position: trainer.Position{Step: i + 1}})
		if err != nil {
			return o, fmt.Errorf("update: %w", err)
		}
		o.loss = m.Loss
	}
	if o.logprobs, err = t.Logprobs(ctx, batch.Samples); err != nil {
		return o, fmt.Errorf("score: %w", err)
	}
	o.graphs = t.NumGraphs()
	s, err := t.Snapshot(checkpoint.State{})
	o.after = s.Weights
	return o, err
}

// generate decodes greedily.
func generate(ctx context.Context, network model.Config, backend string, weights []tensor.Named) (g inference.Generation, err error) {
	e, err := engine.New(engine.Config{Model: network, Backend: backend, Slots: 1, MaxContext: 32, Shards: 1})
	if err != nil {
		return g, err
	}
	defer e.Close()
	if err := e.LoadTensors(ctx, weights, 1); err != nil {
		return g, err
	}
	return e.Generate(ctx, inference.Request{Tokens: []int32{3, 1, 4, 1}, MaxTokens: 8, Version: 1})
}

// samples returns trajectories that fill one pass, since a check spends its time on compiling.
func samples() []rl.Sample {
	draw := rl.Rand(7)
	var out []rl.Sample
	for i := range 4 {
		n := 16
		s := rl.Sample{ProblemID: "p", Rollout: i, Advantage: float32(i%2)*3 - 1, Tokens: make([]int32, n), LossMask: make([]bool, n)}
		for p := range n {
			s.Tokens[p], s.LossMask[p] = int32(draw.IntN(small(device.Mesh{}).VocabSize)), p >= 4 //nolint:gosec // below the vocabulary
		}
		out = append(out, s)
	}
	return out
}

// worst returns the largest difference; infinite for different sizes.
func worst(a, b [][]float32) float64 {
	most := 0.0
	for i := range a {
		if len(a[i]) != len(b[i]) {
			return math.Inf(1)
		}
		for j := range a[i] {
			d := math.Abs(float64(a[i][j]) - float64(b[i][j]))
			if !(d <= most) {
				most = d
			}
		}
	}
	return most
}

// distance returns the norm of the difference of all weights.
func distance(a, b []tensor.Named) float64 {
	sum := 0.0
	for i := range a {
		for j := range a[i].Data {
			d := float64(a[i].Data[j]) - float64(b[i].Data[j])
			sum += d * d
		}
	}
	return math.Sqrt(sum)
}

// ErrFailed means that the process of a check died.
var ErrFailed = errors.New("the self-check did not end well")
