// Package measure checks the estimator: it makes real training steps on this machine
// and reads how much memory they took.
//
// Invariant: a figure is that of the whole process, so each measurement needs a process
// of its own.
package measure

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/qwen3"
)

// Step says which step to make.
type Step struct {
	Backend string // of trainer.Config
	Model   qwen3.Config
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

// Result is the resident memory of the process, in bytes.
type Result struct {
	Before int64 `json:"before"` // before the trainer exists
	Peak   int64 `json:"peak"`   // from then until after the last step
}

// Run makes the steps, in this process.
func Run(ctx context.Context, s Step) (Result, error) {
	debug.FreeOSMemory()
	before, err := status("VmRSS")
	if err != nil {
		return Result{}, err
	}
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600); err != nil { // forgets the peak so far
		return Result{}, fmt.Errorf("reset the peak: %w", err)
	}
	s.Loss.ClipLow, s.Loss.ClipHigh = 0.2, 0.28
	tr, err := trainer.New(trainer.Config{Backend: s.Backend, Model: s.Model, MicrobatchTokens: s.Rows * s.Length, LaneTokens: s.Rows * s.Length,
		Lanes: max(1, s.Passes), Temperature: 1, Loss: s.Loss, Remat: s.Remat, Pack: s.Sequences > 1})
	if err != nil {
		return Result{}, err
	}
	defer tr.Close()
	if err := tr.Init(1); err != nil {
		return Result{}, err
	}
	if s.Loss.KL.Coefficient > 0 {
		if err := tr.KeepReference(); err != nil {
			return Result{}, err
		}
	}
	samples := s.samples()
	o := config.Optimizer{LR: 1e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, MaxGradNorm: 1, Schedule: "constant"}
	for i := range s.Repeat {
		if _, err := tr.Update(ctx, rl.Batch{Step: i, Samples: samples},
			trainer.UpdateOptions{Optimizer: o, Position: trainer.Position{Step: i + 1}, NumMinibatches: s.Minibatches}); err != nil {
			return Result{}, err
		}
	}
	peak, err := status("VmHWM")
	return Result{Before: before, Peak: peak}, err
}

// samples fills the batch: after the shift by one, each row has Length tokens.
// Packing makes rows as long as the longest sequence, so the first row has only one.
func (s Step) samples() []rl.Sample {
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

// status reads a line of /proc/self/status in bytes.
func status(key string) (int64, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read memory: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("read memory: no %s in /proc/self/status", key)
}
