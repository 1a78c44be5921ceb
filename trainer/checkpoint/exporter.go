package checkpoint

import (
	"context"
	"fmt"
	"maps"
	"math"

	"temper/internal/blob"
	"temper/trainer/model"
	"temper/trainer/weights/gguf"
	"temper/trainer/weights/hf"
	"temper/trainer/weights/safetensors"
)

// Exporter writes the policies of a store. Its methods may be called concurrently.
type Exporter struct {
	Store blob.Store
	// Backend of the forward pass; empty is the Go backend.
	Backend string
	// Generation describes the policies to other programs; nil omits the description.
	Generation *hf.Generation
}

// Write writes the policy at ref as a new model directory, in float32.
func (p Exporter) Write(ctx context.Context, ref blob.Ref, dir string) error {
	policy, err := LoadWeights(ctx, p.Store, ref)
	if err != nil {
		return err
	}
	files := maps.Clone(policy.Files)
	if files == nil {
		files = map[string][]byte{}
	}
	if policy.Tokenizer != nil {
		files[hf.TokenizerFile] = policy.Tokenizer
	}
	if p.Generation != nil {
		if files, err = hf.Describe(policy.Model, safetensors.F32, files, *p.Generation); err != nil {
			return err
		}
	}
	return hf.Create(dir, policy.Model, model.ByName(policy.Weights), hf.Layout{DType: safetensors.F32, Files: files})
}

// Convert writes a model directory as a GGUF file, in float32.
func (Exporter) Convert(_ context.Context, dir, file string) error {
	m, err := hf.Load(dir)
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // read only
	_, err = gguf.Write(file, m, gguf.Options{DType: safetensors.F32, IDsOnly: true})
	return err
}

// Logprobs returns the log-probability of each id of ids[from:] after all ids before it,
// under the softmax of the logits over temperature. It holds the whole policy in memory.
func (p Exporter) Logprobs(_ context.Context, dir string, ids []int32, from int, temperature float32) ([]float32, error) {
	if from < 1 || from > len(ids) || !(temperature > 0) {
		return nil, fmt.Errorf("log-probabilities of %d ids from %d at temperature %v", len(ids), from, temperature)
	}
	m, err := hf.Load(dir)
	if err != nil {
		return nil, err
	}
	defer m.Close() //nolint:errcheck // read only
	backend := p.Backend
	if backend == "" {
		backend = "go"
	}
	logits, err := m.Logits(backend, ids, hf.AllRows)
	if err != nil {
		return nil, err
	}
	out := make([]float32, 0, len(ids)-from)
	for i := from; i < len(ids); i++ {
		out = append(out, logprob(logits[i-1], ids[i], float64(temperature)))
	}
	return out, nil
}

// logprob returns the log-probability of an id under the softmax of logits / temperature.
func logprob(logits []float32, id int32, temperature float64) float32 {
	largest := math.Inf(-1)
	for _, x := range logits {
		largest = max(largest, float64(x))
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp((float64(x) - largest) / temperature)
	}
	return float32((float64(logits[id])-largest)/temperature - math.Log(sum))
}
