package schedulerbench

import (
	"fmt"
	"math"
)

// Hardware is a roofline: what one engine can read and compute.
type Hardware struct {
	Bandwidth float64 // bytes a second that decoding reaches
	Compute   float64 // operations a second that products reach
	Weights   float64 // bytes of the policy
	KVBytes   float64 // bytes of KV cache a token
	TokenOps  float64 // operations of a token in products
	Overhead  float64 // seconds a pass
	Capacity  int64   // tokens of KV cache
}

// MI300X is a policy of 14B parameters in bf16 on an MI300X: three quarters of 5.3 TB/s
// and two fifths of 1,307 Tflop/s.
func MI300X() Hardware {
	return Hardware{
		Bandwidth: 4.0e12, Compute: 520e12, Weights: 29.5e9, KVBytes: 163840, TokenOps: 29.5e9, Overhead: 0.003, Capacity: 790_000,
	}
}

// Validate refuses a machine that cannot be.
func (h *Hardware) Validate() error {
	for name, v := range map[string]float64{
		"bandwidth": h.Bandwidth, "compute": h.Compute, "weights": h.Weights, "KV bytes": h.KVBytes, "operations": h.TokenOps, "capacity": float64(h.Capacity),
	} {
		if !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("hardware: %s is %g, want a number above 0", name, v)
		}
	}
	if !(h.Overhead >= 0) || math.IsInf(h.Overhead, 0) {
		return fmt.Errorf("hardware: overhead is %g, want at least 0", h.Overhead)
	}
	return nil
}

// pass is the time of a pass of so many rows that hold so many tokens.
func (h *Hardware) pass(rows, tokens float64) float64 {
	return h.Overhead + max(h.Weights/h.Bandwidth, rows*h.TokenOps/h.Compute) + tokens*h.KVBytes/h.Bandwidth
}

// prefill is the time to make so many tokens of cache.
func (h *Hardware) prefill(tokens int64) float64 { return float64(tokens) * h.TokenOps / h.Compute }

// Bound is a time below which no schedule can get.
type Bound struct {
	// Reads, Products, Prefill and Passes are seconds of work, divided by the engines.
	Reads, Products, Prefill, Passes float64
	// Longest is the time that the longest trajectory needs alone.
	Longest float64
}

// Seconds is the bound: the work, or the longest trajectory where that takes more.
func (b Bound) Seconds() float64 { return max(b.Work(), b.Longest) }

// Work is the bound of the work alone.
func (b Bound) Work() float64 { return b.Reads + b.Products + b.Prefill + b.Passes }

// bound sums the work. There are at least as many passes as it takes to read all cached
// tokens by as many as an engine holds, and each reads the weights, or computes where
// that takes longer.
func (h *Hardware) bound(rollouts []Rollout, engines int) Bound {
	var b Bound
	var reads, sampled, prefill float64
	for i := range rollouts {
		r := &rollouts[i]
		context := float64(r.Prompt)
		alone := h.prefill(int64(r.Prompt))
		prefill += context
		for j, n := range r.Turns {
			read := float64(n)*context + float64(n)*float64(n-1)/2
			reads += read
			sampled += float64(n)
			alone += float64(n)*h.pass(1, 0) + read*h.KVBytes/h.Bandwidth
			context += float64(n)
			if j < len(r.Tools) {
				tokens := r.Tools[j].Tokens
				alone += r.Tools[j].Seconds + h.prefill(int64(tokens))
				context += float64(tokens)
				prefill += float64(tokens)
			}
		}
		b.Longest = max(b.Longest, alone)
	}
	n := float64(engines)
	passes := reads / float64(h.Capacity)
	b.Reads = reads * h.KVBytes / h.Bandwidth / n
	products, weights := sampled*h.TokenOps/h.Compute, passes*h.Weights/h.Bandwidth
	b.Products = max(products, weights) / n
	b.Prefill = h.prefill(int64(prefill)) / n
	b.Passes = passes * h.Overhead / n
	return b
}
