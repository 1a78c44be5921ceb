package trainerbench

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // the step
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"temper/tools/bench/meter"
)

//go:embed torch.py
var torchSteps string

// Torch is a process of Python that makes training steps of the same shape in PyTorch,
// with weights and tokens of its own. On a CPU it has as many threads as we have.
type Torch struct {
	Mode string // eager or compile
	// First is the first step; in the mode compile, it compiles.
	First TorchStep

	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	text bytes.Buffer // of stderr
}

// TorchStep is what one step says of itself.
type TorchStep struct {
	Version string  `json:"version"`
	Device  string  `json:"device"`
	Wall    float64 `json:"wall"` // seconds
	CPU     float64 `json:"cpu"`
	Loss    float64 `json:"loss"`
	// Peak is the allocator's on a GPU, and the resident memory of the process on a CPU.
	Peak int64 `json:"peak"`
}

// TorchModes are the ways in which PyTorch makes a step.
func TorchModes() []string { return []string{"eager", "compile"} }

// StartTorch starts a process and waits for its first step. The interpreter has torch,
// and for the mode compile a C++ compiler.
func StartTorch(ctx context.Context, python string, c Config, mode string) (*Torch, error) {
	m := c.Model
	device := "cuda" // ROCm calls itself so too
	if onCPU(c.Backend) || c.Backend == "" || c.Backend == "xla:cpu" {
		device = "cpu"
	}
	line, err := json.Marshal(map[string]any{
		"vocab": m.VocabSize, "hidden": m.HiddenSize, "feed": m.IntermediateSize, "layers": m.NumHiddenLayers, "heads": m.NumAttentionHeads,
		"kv_heads": m.NumKeyValueHeads, "head_dim": m.HeadDim, "theta": m.RopeTheta, "eps": m.RMSNormEps, "tie": m.TieWordEmbeddings,
		"init": m.InitializerRange, "rows": c.Batch, "tokens": c.Tokens, "compute": c.Compute, "mode": mode, "device": device,
		"threads": runtime.GOMAXPROCS(0),
	})
	if err != nil {
		return nil, err
	}
	t := &Torch{Mode: mode, cmd: exec.CommandContext(ctx, python, "-c", torchSteps)} //nolint:gosec // the user names the interpreter
	t.cmd.Stderr = &t.text
	if t.in, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.out = bufio.NewReader(out)
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start PyTorch: %w", err)
	}
	if t.First, err = t.ask(line); err != nil {
		_ = t.in.Close() // it has ended
		return nil, err
	}
	return t, nil
}

// Step makes one step.
func (t *Torch) Step() (TorchStep, error) { return t.ask([]byte("{}")) }

// Close ends the process.
func (t *Torch) Close() {
	_ = t.in.Close() // its end of input; the process has nothing to say of it
	_ = t.cmd.Wait()
}

// ask writes a line and reads one. A process that ended is waited for, and its last line
// of stderr says why.
func (t *Torch) ask(line []byte) (s TorchStep, err error) {
	_, err = t.in.Write(append(line, '\n'))
	if err == nil {
		line, err = t.out.ReadBytes('\n')
	}
	if err != nil {
		if ended := t.cmd.Wait(); ended != nil {
			err = ended
		}
		lines := strings.Split(strings.TrimSpace(t.text.String()), "\n")
		return s, fmt.Errorf("%s: %w: %s", t.cmd.Path, err, lines[len(lines)-1])
	}
	if err := json.Unmarshal(line, &s); err != nil {
		return s, fmt.Errorf("%s answered %.100q: %w", t.cmd.Path, line, err)
	}
	return s, nil
}

// TorchReport is what PyTorch's steps cost beside ours.
type TorchReport struct {
	Mode               string       `json:"mode"`
	Version            string       `json:"version"`
	Device             string       `json:"device"`
	First              TorchStep    `json:"first_step"`
	Step               meter.Cost   `json:"step"` // the median over the rounds
	Rounds             []meter.Cost `json:"rounds"`
	TokensPerSecond    float64      `json:"tokens_per_s"`
	TokensPerCPUSecond float64      `json:"tokens_per_cpu_s"`
	PeakRSS            int64        `json:"peak_rss_bytes"`
	// Ratio and CPURatio are how many times its tokens we made in a second, of wall time
	// and of processor time.
	Ratio    float64 `json:"ratio"`
	CPURatio float64 `json:"cpu_ratio"`
}

// round makes the steps of a round.
func (t *Torch) round(r *TorchReport, steps int) error {
	var all meter.Cost
	for range steps {
		s, err := t.Step()
		if err != nil {
			return err
		}
		all.Wall += time.Duration(s.Wall * float64(time.Second))
		all.CPU += time.Duration(s.CPU * float64(time.Second))
		r.PeakRSS = s.Peak
	}
	r.Rounds = append(r.Rounds, meter.Cost{Wall: all.Wall / time.Duration(steps), CPU: all.CPU / time.Duration(steps)})
	return nil
}

// rates derives the figures from the rounds and from ours.
func (r *TorchReport) rates(tokens int, ours Report) {
	r.Step = meter.MedianCost(r.Rounds)
	r.TokensPerSecond, r.TokensPerCPUSecond = meter.Rate(float64(tokens), r.Step.Wall), meter.Rate(float64(tokens), r.Step.CPU)
	r.Ratio, r.CPURatio = ours.TokensPerSecond/r.TokensPerSecond, ours.TokensPerCPUSecond/r.TokensPerCPUSecond
}
