package devicebench

import (
	"context"
	"time"

	"temper/tools/bench/meter"
	"temper/tools/bench/trainerbench"
	"temper/trainer/device"
)

// TorchStep is PyTorch's training step on the same shape.
type TorchStep struct {
	Version         string  `json:"version"`
	Device          string  `json:"device"`
	Mode            string  `json:"mode"` // eager or compile
	Step            float64 `json:"step"`
	TokensPerSecond float64 `json:"tokens_per_s"`
	// Peak is the allocator's on a GPU, and the resident memory of the process on a CPU.
	Peak int64 `json:"peak"`
	// Losses of the first steps, from start weights of its own.
	Losses []float64 `json:"losses"`
	Error  string    `json:"error,omitempty"`
}

// torchPatience is how long PyTorch may take for a case.
const torchPatience = 15 * time.Minute

// Torch has PyTorch make the step of a case, eager and compiled, each in a process.
func Torch(ctx context.Context, python string, c Case) ([]TorchStep, error) {
	config, err := c.config(device.Mesh{})
	if err != nil {
		return nil, err
	}
	if onCPU(c.Backend) {
		config.Backend = "go" // whatever the plugin is called
	}
	var out []TorchStep
	for _, mode := range trainerbench.TorchModes() {
		s, err := torchCase(ctx, python, config, mode)
		if err != nil {
			return out, err
		}
		out = append(out, s)
	}
	return out, nil
}

func torchCase(ctx context.Context, python string, config trainerbench.Config, mode string) (TorchStep, error) {
	ctx, cancel := context.WithTimeout(ctx, torchPatience)
	defer cancel()
	t, err := trainerbench.StartTorch(ctx, python, config, mode)
	if err != nil {
		return TorchStep{}, err
	}
	defer t.Close()
	s := TorchStep{Version: t.First.Version, Device: t.First.Device, Mode: mode, Losses: []float64{t.First.Loss}}
	var steps []float64
	for range config.Rounds {
		one, err := t.Step()
		if err != nil {
			return s, err
		}
		steps, s.Peak = append(steps, one.Wall), one.Peak
		if len(s.Losses) < 4 {
			s.Losses = append(s.Losses, one.Loss)
		}
	}
	s.Step = meter.Median(steps)
	s.TokensPerSecond = float64(config.Batch*config.Tokens) / s.Step
	return s, nil
}
