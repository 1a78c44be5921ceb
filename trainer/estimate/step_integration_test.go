//go:build integration

package estimate_test

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/model"
)

// memoryStep describes the steps that measureMemory makes.
type memoryStep struct {
	Backend string // of trainer.Config
	Model   model.Config
	// Rows sequences of Length tokens each make a device pass.
	Rows, Length int
	// Passes is the number of passes side by side; 0 is 1.
	Passes int
	Remat  bool
	// Sequences is the number of sequences in each row but the first. With more than one
	// they are packed, and Length is a power of two.
	Sequences int
	// Loss is the objective. Run sets the bounds of the recipe in it.
	Loss config.Loss
	// Minibatches is the number of updates of a step, of Rows each; 0 is 1.
	Minibatches int
	// Repeat is the number of steps; the peak is that of all of them.
	Repeat int
}

// memory is the resident memory of this process in bytes.
type memory struct {
	Before int64 `json:"before"` // before the trainer exists
	Peak   int64 `json:"peak"`   // from then until after the last step
}

// measureMemory makes the steps in this process and reads how much memory they
// took. The figure is of the whole process, so each measurement needs a process of
// its own.
func measureMemory(ctx context.Context, s memoryStep) (memory, error) {
	debug.FreeOSMemory()
	before, err := statusBytes("VmRSS")
	if err != nil {
		return memory{}, err
	}
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600); err != nil { // forgets the peak so far
		return memory{}, fmt.Errorf("reset the peak: %w", err)
	}
	s.Loss.ClipLow, s.Loss.ClipHigh = 0.2, 0.28
	tr, err := trainer.New(trainer.Config{Backend: s.Backend, Model: s.Model, MicrobatchTokens: s.Rows * s.Length, LaneTokens: s.Rows * s.Length,
		Lanes: max(1, s.Passes), Temperature: 1, Loss: s.Loss, Remat: s.Remat, Pack: s.Sequences > 1})
	if err != nil {
		return memory{}, err
	}
	defer tr.Close()
	if err := tr.Init(1); err != nil {
		return memory{}, err
	}
	if s.Loss.KL.Coefficient > 0 {
		if err := tr.KeepReference(); err != nil {
			return memory{}, err
		}
	}
	samples := s.samples()
	o := config.Optimizer{LR: 1e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, MaxGradNorm: 1, Schedule: "constant"}
	for i := range s.Repeat {
		if _, err := tr.Update(ctx, rl.Batch{Step: i, Samples: samples},
			trainer.UpdateOptions{Optimizer: o, Position: trainer.Position{Step: i + 1}, NumMinibatches: s.Minibatches}); err != nil {
			return memory{}, err
		}
	}
	peak, err := statusBytes("VmHWM")
	return memory{Before: before, Peak: peak}, err
}

// samples fills the batch: after the shift by one, each row has Length tokens.
// Packing makes rows as long as the longest sequence, so the first has one alone.
func (s memoryStep) samples() []rl.Sample {
	draw := rl.Rand(rl.Seed(1, "measure"))
	num, length := s.Rows*max(1, s.Minibatches)*max(1, s.Passes), s.Length
	if s.Sequences > 1 {
		num, length = 1+(s.Rows-1)*s.Sequences, s.Length/s.Sequences
	}
	out := make([]rl.Sample, num)
	for i := range out {
		n := length + 1
		if i == 0 {
			n = s.Length + 1
		}
		out[i] = rl.Sample{ProblemID: "measure", Rollout: i, Advantage: float32(i%2)*2 - 1, Tokens: make([]int32, n),
			LossMask: make([]bool, n), RolloutLogprobs: make([]float32, n)}
		for p := range n {
			out[i].Tokens[p], out[i].LossMask[p] = int32(draw.IntN(s.Model.VocabSize)), p > 0
		}
	}
	return out
}

// statusBytes reads a line of /proc/self/status, which counts in KiB.
func statusBytes(key string) (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			var n int64
			_, err := fmt.Sscan(value, &n)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/self/status", key)
}
