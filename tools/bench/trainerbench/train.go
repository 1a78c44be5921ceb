package trainerbench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/tools/bench/meter"
	"temper/trainer"
	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
	"temper/trainer/estimate"
	"temper/trainer/model"
)

// Config of a measurement.
type Config struct {
	Model model.Config
	// Backend is the trainer's; "" is the CPU backend.
	Backend string
	// Kernels of the CPU backend, native when empty.
	Kernels kernels.Choice
	// Mesh of an XLA backend's devices; the zero value is one device.
	Mesh device.Mesh
	// Compute is trainer.Config's: float32, also when empty, or bfloat16.
	Compute string
	// Batch sequences of Tokens predicted tokens each make a step.
	Batch, Tokens int
	// MicrobatchTokens bounds a device pass; 0 allows the whole batch in one.
	MicrobatchTokens int
	Remat            bool
	// Rounds of Steps steps are measured; the median round counts.
	Rounds, Steps int
	// Seed draws weights and tokens.
	Seed uint64
	// Torch is a Python interpreter that has PyTorch, whose steps take turns with ours, a
	// round each; empty for none.
	Torch string
}

// Validate reports everything that cannot be measured.
func (c Config) Validate() error {
	errs := []error{c.Model.Validate()}
	for _, f := range []struct {
		name  string
		value int
	}{{"batch", c.Batch}, {"tokens", c.Tokens}, {"rounds", c.Rounds}, {"steps", c.Steps}} {
		if f.value < 1 {
			errs = append(errs, fmt.Errorf("%s: %d, want at least 1", f.name, f.value))
		}
	}
	if c.MicrobatchTokens < 0 {
		errs = append(errs, fmt.Errorf("microbatch tokens: %d, want 0 or more", c.MicrobatchTokens))
	}
	return errors.Join(append(errs, device.CheckKernels(c.Backend, c.Kernels), device.CheckMesh(c.Backend, c.Mesh))...)
}

// Report of training steps: forward, backward, clipping and AdamW of the
// supervised loss over all tokens.
type Report struct {
	Backend string `json:"backend"`
	// Kernels describes what decides bits: results of equal lines can be compared in them.
	Kernels    string       `json:"kernels,omitempty"`
	Model      model.Config `json:"model"`
	Parameters int          `json:"parameters"`
	Batch      int          `json:"batch"`
	Tokens     int          `json:"tokens"`
	Remat      bool         `json:"remat"`
	// First is the cost of the first step, which builds and compiles the graphs.
	First meter.Cost `json:"first_step"`
	// Step is the median over the rounds.
	Step               meter.Cost   `json:"step"`
	Rounds             []meter.Cost `json:"rounds"`
	TokensPerSecond    float64      `json:"tokens_per_s"`
	TokensPerCPUSecond float64      `json:"tokens_per_cpu_s"`
	// FLOPs of the model in a step, as estimate.Train counts them, and in a second.
	FLOPs          float64 `json:"flops"`
	FLOPsPerSecond float64 `json:"flops_per_s"`
	// Peak is the machine's, measured before and after; nil for an accelerator.
	Peak *Peak `json:"peak,omitempty"`
	// PeakShare is the share of the peak that the step reaches, both in processor
	// time; WallShare has both in wall time.
	PeakShare float64 `json:"peak_share"`
	WallShare float64 `json:"wall_share"`
	// PeakRSS is the largest resident memory of the process in bytes.
	PeakRSS int64 `json:"peak_rss_bytes"`
	// Losses of the first steps: what another implementation must get from the
	// same weights and tokens.
	Losses []float64 `json:"losses"`
	Graphs int       `json:"graphs"`
	// Shares of the processor time by kind of work; see Shares.
	Shares map[string]float64 `json:"shares,omitempty"`
	// Torch is PyTorch beside, one for each of its modes.
	Torch []TorchReport `json:"torch,omitempty"`
}

const numLosses = 4 // that a report keeps

// Train measures training steps. profile, when not nil, is run around the
// measured rounds: it calls its argument.
func Train(ctx context.Context, c Config, profile func(func() error) error) (Report, error) {
	if err := c.Validate(); err != nil {
		return Report{}, err
	}
	r := Report{Backend: c.Backend, Model: c.Model, Parameters: c.Model.NumParameters(), Batch: c.Batch, Tokens: c.Tokens, Remat: c.Remat}
	if r.Backend == "" {
		r.Backend = "go"
	}
	s, err := newStepper(c)
	if err != nil {
		return Report{}, err
	}
	defer s.trainer.Close()
	if onCPU(r.Backend) {
		p, err := MeasurePeak(3)
		if err != nil {
			return Report{}, err
		}
		r.Peak, r.Kernels = &p, kernels.Describe(c.Kernels).Bits()
	}
	begin := meter.Now()
	if err := s.step(ctx); err != nil {
		return Report{}, err
	}
	r.First = begin.Since(1)
	if err := s.startTorch(ctx, c, &r); err != nil {
		return Report{}, err
	}
	defer s.endTorch()
	if profile == nil {
		profile = func(run func() error) error { return run() }
	}
	if err := profile(func() error { return s.rounds(ctx, &r, c.Rounds, c.Steps) }); err != nil {
		return Report{}, err
	}
	r.PeakRSS, r.Graphs, r.Losses = meter.PeakRSS(), s.trainer.NumGraphs(), s.losses
	return r, r.rates(c)
}

// rates derives the figures from the rounds.
func (r *Report) rates(c Config) error {
	r.Step = meter.MedianCost(r.Rounds)
	tokens := c.Batch * c.Tokens
	r.TokensPerSecond, r.TokensPerCPUSecond = meter.Rate(float64(tokens), r.Step.Wall), meter.Rate(float64(tokens), r.Step.CPU)
	r.FLOPs = estimate.Train(c.Model, tokens, c.Tokens, c.Remat).Model
	r.FLOPsPerSecond = meter.Rate(r.FLOPs, r.Step.Wall)
	for i := range r.Torch {
		r.Torch[i].rates(tokens, *r)
	}
	if r.Peak == nil {
		return nil
	}
	after, err := MeasurePeak(3)
	if err != nil {
		return err
	}
	r.Peak.PerCore, r.Peak.Total = max(r.Peak.PerCore, after.PerCore), max(r.Peak.Total, after.Total)
	r.PeakShare = meter.Rate(r.FLOPs, r.Step.CPU) / r.Peak.PerCore
	r.WallShare = r.FLOPsPerSecond / r.Peak.Total
	return nil
}

// onCPU says whether a backend works on the processor whose peak is measured.
func onCPU(backend string) bool {
	family, _, _ := strings.Cut(backend, ":")
	return family == "go"
}

// stepper makes one training step after the other on the same batch.
type stepper struct {
	trainer *trainer.Trainer
	samples []rl.Sample
	steps   int
	losses  []float64
	torch   []*Torch // that take turns
}

func newStepper(c Config) (*stepper, error) {
	c.Model.MaxPositionEmbeddings = max(c.Model.MaxPositionEmbeddings, c.Tokens+1)
	if c.MicrobatchTokens == 0 {
		c.MicrobatchTokens = 2 * c.Batch * c.Tokens // shapes are rounded up
	}
	t, err := trainer.New(trainer.Config{
		Backend: c.Backend, Kernels: c.Kernels, Mesh: c.Mesh, Compute: c.Compute, Model: c.Model, Seed: c.Seed, MicrobatchTokens: c.MicrobatchTokens,
		Temperature: 1, Loss: config.Default().RL.Loss, Remat: c.Remat,
	})
	if err != nil {
		return nil, err
	}
	if err := t.Init(c.Seed); err != nil {
		t.Close()
		return nil, err
	}
	return &stepper{trainer: t, samples: Samples(c)}, nil
}

// Samples are the sequences of a step: uniform tokens, all but the first in the loss.
func Samples(c Config) []rl.Sample {
	out := make([]rl.Sample, c.Batch)
	for i := range out {
		draw := rl.Rand(rl.Seed(c.Seed, "bench", uint64(i)))
		s := rl.Sample{ProblemID: "bench", Rollout: i, Tokens: make([]int32, c.Tokens+1), LossMask: make([]bool, c.Tokens+1)}
		for p := range s.Tokens {
			s.Tokens[p], s.LossMask[p] = int32(draw.IntN(c.Model.VocabSize)), p > 0
		}
		out[i] = s
	}
	return out
}

func (s *stepper) step(ctx context.Context) error {
	s.steps++
	o := config.Optimizer{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.01, MaxGradNorm: 1, Schedule: config.ScheduleConstant}
	m, err := s.trainer.SFTStep(ctx, s.samples, o, trainer.Position{Step: s.steps})
	if err != nil {
		return err
	}
	if len(s.losses) < numLosses {
		s.losses = append(s.losses, m.Loss)
	}
	return nil
}

func (s *stepper) rounds(ctx context.Context, r *Report, rounds, steps int) error {
	for range rounds {
		begin := meter.Now()
		for range steps {
			if err := s.step(ctx); err != nil {
				return err
			}
		}
		r.Rounds = append(r.Rounds, begin.Since(steps))
		for i, t := range s.torch {
			if err := t.round(&r.Torch[i], steps); err != nil {
				return err
			}
		}
	}
	return nil
}

// startTorch starts what takes turns with us.
func (s *stepper) startTorch(ctx context.Context, c Config, r *Report) error {
	if c.Torch == "" {
		return nil
	}
	for _, mode := range TorchModes() {
		t, err := StartTorch(ctx, c.Torch, c, mode)
		if err != nil {
			s.endTorch()
			return err
		}
		s.torch = append(s.torch, t)
		r.Torch = append(r.Torch, TorchReport{Mode: mode, Version: t.First.Version, Device: t.First.Device, First: t.First})
	}
	return nil
}

func (s *stepper) endTorch() {
	for _, t := range s.torch {
		t.Close()
	}
	s.torch = nil
}
