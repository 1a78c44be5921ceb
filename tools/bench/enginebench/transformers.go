package enginebench

import (
	"bufio"
	"context"
	_ "embed" // the loop
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"temper/trainer/model"
)

//go:embed transformers.py
var transformersLoop string

// Transformers is a process of Python that decodes with a loop of transformers, on one
// thread, a network of the same shape.
type Transformers struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// StartTransformers starts the process. The interpreter has torch and transformers.
func StartTransformers(ctx context.Context, python string, network model.Config) (*Transformers, error) {
	cmd := exec.CommandContext(ctx, python, "-c", transformersLoop) //nolint:gosec // the user names the interpreter
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start transformers: %w", err)
	}
	t := &Transformers{cmd: cmd, in: in, out: bufio.NewReader(out)}
	return t, t.send(map[string]any{
		"vocab_size": network.VocabSize, "hidden_size": network.HiddenSize, "intermediate_size": network.IntermediateSize,
		"num_hidden_layers": network.NumHiddenLayers, "num_attention_heads": network.NumAttentionHeads, "num_key_value_heads": network.NumKeyValueHeads,
		"head_dim": network.HeadDim, "max_position_embeddings": 1 << 15, "tie_word_embeddings": network.TieWordEmbeddings,
	})
}

// Name is what rows call it.
func (*Transformers) Name() string { return "transformers" }

// Decode sends the prompts and waits for the times.
func (t *Transformers) Decode(_ context.Context, prompts [][]int32, newTokens int) (Round, error) {
	if err := t.send(map[string]any{"prompts": prompts, "new_tokens": newTokens}); err != nil {
		return Round{}, err
	}
	line, err := t.out.ReadBytes('\n')
	if err != nil {
		return Round{}, fmt.Errorf("transformers ended: %w", err)
	}
	var a struct {
		First float64 `json:"first_s"`
		Wall  float64 `json:"wall_s"`
		CPU   float64 `json:"cpu_s"`
		Peak  int64   `json:"peak_rss"`
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return Round{}, fmt.Errorf("transformers answered %.100q: %w", line, err)
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return Round{FirstToken: seconds(a.First), Wall: seconds(a.Wall), CPU: seconds(a.CPU), Tokens: len(prompts) * (newTokens - 1), PeakRSS: a.Peak}, nil
}

// send writes one line.
func (t *Transformers) send(v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = t.in.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("tell transformers: %w", err)
	}
	return nil
}

// Close ends the process.
func (t *Transformers) Close() {
	_ = t.in.Close() // the loop ends with its input
	_ = t.cmd.Wait() // it has nothing to say any more
}
