package devicebench

import (
	"bytes"
	"context"
	_ "embed" // the step
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"temper/tools/bench/trainerbench"
	"temper/trainer/device"
)

//go:embed peer.py
var torchStep string

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
	var out []TorchStep
	for _, mode := range []string{"eager", "compile"} {
		s, err := torchCase(ctx, python, c, config, mode)
		if err != nil {
			return out, err
		}
		out = append(out, s)
	}
	return out, nil
}

func torchCase(ctx context.Context, python string, c Case, config trainerbench.Config, mode string) (s TorchStep, err error) {
	m := config.Model
	in, err := json.Marshal(map[string]any{
		"vocab": m.VocabSize, "hidden": m.HiddenSize, "feed": m.IntermediateSize, "layers": m.NumHiddenLayers, "heads": m.NumAttentionHeads,
		"kv_heads": m.NumKeyValueHeads, "head_dim": m.HeadDim, "theta": m.RopeTheta, "eps": m.RMSNormEps, "tie": m.TieWordEmbeddings,
		"init": m.InitializerRange, "rows": c.Rows, "tokens": c.Tokens, "compute": c.Compute, "rounds": config.Rounds, "mode": mode,
		"device": map[bool]string{true: "cpu", false: "cuda"}[onCPU(c.Backend)], // ROCm calls itself cuda
	})
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, torchPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", torchStep) //nolint:gosec // the user names the interpreter
	var text bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &text
	answer, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		return s, fmt.Errorf("%s: %w: %s", python, err, lines[len(lines)-1])
	}
	if err := json.Unmarshal(answer, &s); err != nil {
		return s, fmt.Errorf("%s answered %.100q: %w", python, answer, err)
	}
	return s, nil
}
