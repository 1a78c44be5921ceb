package trainerbench

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/tools/bench/meter"
	"temper/trainer"
	"temper/trainer/model"
)

// MemoryStep says which step to make for MeasureMemory.
type MemoryStep struct {
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

// Memory is the resident memory of this process in bytes.
type Memory struct {
	Before int64 `json:"before"` // before the trainer exists
	Peak   int64 `json:"peak"`   // from then until after the last step
}

// MeasureMemory makes the steps in this process and reads how much memory they
// took. The figure is of the whole process, so a caller that wants more than one
// starts a process for each.
func MeasureMemory(ctx context.Context, s MemoryStep) (Memory, error) {
	debug.FreeOSMemory()
	before, err := statusBytes("VmRSS")
	if err != nil {
		return Memory{}, err
	}
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600); err != nil { // forgets the peak so far
		return Memory{}, fmt.Errorf("reset the peak: %w", err)
	}
	s.Loss.ClipLow, s.Loss.ClipHigh = 0.2, 0.28
	tr, err := trainer.New(trainer.Config{Backend: s.Backend, Model: s.Model, MicrobatchTokens: s.Rows * s.Length, LaneTokens: s.Rows * s.Length,
		Lanes: max(1, s.Passes), Temperature: 1, Loss: s.Loss, Remat: s.Remat, Pack: s.Sequences > 1})
	if err != nil {
		return Memory{}, err
	}
	defer tr.Close()
	if err := tr.Init(1); err != nil {
		return Memory{}, err
	}
	if s.Loss.KL.Coefficient > 0 {
		if err := tr.KeepReference(); err != nil {
			return Memory{}, err
		}
	}
	samples := s.samples()
	o := config.Optimizer{LR: 1e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, MaxGradNorm: 1, Schedule: "constant"}
	for i := range s.Repeat {
		if _, err := tr.Update(ctx, rl.Batch{Step: i, Samples: samples},
			trainer.UpdateOptions{Optimizer: o, Position: trainer.Position{Step: i + 1}, NumMinibatches: s.Minibatches}); err != nil {
			return Memory{}, err
		}
	}
	peak, err := statusBytes("VmHWM")
	return Memory{Before: before, Peak: peak}, err
}

// samples fills the batch: after the shift by one, each row has Length tokens.
// Packing makes rows as long as the longest sequence, so the first has one alone.
func (s MemoryStep) samples() []rl.Sample {
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

// statusBytes reads a line of /proc/self/status.
func statusBytes(key string) (int64, error) {
	n := meter.StatusBytes("/proc/self/status", key)
	if n == 0 {
		return 0, fmt.Errorf("read memory: no %s in /proc/self/status", key)
	}
	return n, nil
}
