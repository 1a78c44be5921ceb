// Package fakes stands in for the servers of others in tests: vLLM, SGLang and
// llama.cpp as far as package external speaks with them, with every fault that they are
// known for. It owns no contract: that is the servers', whose real ones the integration
// tests run.
//
// Invariant: without a fault, a fake computes the policy that it has read from its
// folder, and samples from it.
package fakes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"temper/internal/blob"
	"temper/internal/rl"
)

// Model computes logits that depend on the last tokens and on a number, its weights.
type Model struct {
	Weights uint64 `json:"weights"`
	Vocab   int    `json:"vocab"`
}

// logits of the token behind ids.
func (m Model) logits(ids []int32) []float64 {
	seed := rl.Seed(m.Weights, "fake", uint64(len(ids)), uint64(ids[len(ids)-1]))
	out := make([]float64, m.Vocab)
	for v := range out {
		out[v] = 4 * (float64(rl.Uniform(seed, v)) - 0.5)
	}
	return out
}

// distribution is the logarithm of the softmax of logits / temperature.
func distribution(logits []float64, temperature float64) []float64 {
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(x / temperature)
	}
	out := make([]float64, len(logits))
	for i, x := range logits {
		out[i] = x/temperature - math.Log(sum)
	}
	return out
}

// sample draws the token behind ids and returns its log-probability, after and before
// the temperature.
func (m Model) sample(ids []int32, temperature float64, seed uint64) (id int32, processed, raw float64) {
	logits := m.logits(ids)
	plain := distribution(logits, 1)
	if temperature == 0 {
		for v := range logits {
			if logits[v] > logits[id] {
				id = int32(v)
			}
		}
		return id, plain[id], plain[id]
	}
	scaled := distribution(logits, temperature)
	u := float64(rl.Uniform(seed, len(ids)))
	for v := range scaled {
		id = int32(v)
		if u -= math.Exp(scaled[v]); u < 0 {
			break
		}
	}
	return id, scaled[id], plain[id]
}

// Publisher writes policies that fakes read; it implements external.Publisher. The
// weights of a policy are the size of its Ref.
type Publisher struct{ Vocab int }

const weightsFile = "config.json"

// Write makes a folder with a policy.
func (p Publisher) Write(_ context.Context, ref blob.Ref, dir string) error {
	data, err := json.Marshal(Model{Weights: uint64(ref.Size), Vocab: p.Vocab})
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, weightsFile), data, 0o644))
}

// Convert makes a folder one file.
func (p Publisher) Convert(_ context.Context, dir, file string) error {
	data, err := os.ReadFile(filepath.Join(dir, weightsFile))
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// Logprobs returns the log-probabilities of ids[from:] under the policy in a folder.
func (p Publisher) Logprobs(_ context.Context, dir string, ids []int32, from int, temperature float32) ([]float32, error) {
	m, err := readModel(filepath.Join(dir, weightsFile))
	if err != nil {
		return nil, err
	}
	var out []float32
	for i := from; i < len(ids); i++ {
		out = append(out, float32(distribution(m.logits(ids[:i]), float64(temperature))[ids[i]]))
	}
	return out, nil
}

func readModel(file string) (m Model, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s: %w", file, err)
	}
	return m, nil
}

// Ref of a policy with the weights.
func Ref(weights int64) blob.Ref {
	return blob.Ref{Key: "policy", SHA256: fmt.Sprintf("%064x", weights), Size: weights}
}
