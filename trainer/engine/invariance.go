package engine

import (
	"fmt"
	"math"
	"slices"

	"temper/trainer/qwen3"
)

// maxRows is the number of tokens in the largest step: enough for the CPU
// kernels to run at full speed, and few enough that all of a small model's
// products stay with the kernel for small matrices, which rounds every row alike.
const maxRows = 64

// maxChunk bounds the tokens that one sequence brings to a step.
const maxChunk = 16

// probeTokens is the length of the sequence that the shapes are compared on:
// more than a chunk, and more than a vector of the attention kernel.
const probeTokens = 18

// invariantShapes returns the step shapes whose results are bit-identical to
// those of the largest shape, whatever row a sequence sits in and whatever runs
// beside it. Which kernels a backend picks for which size is its own business,
// so the claim is tested on the device at hand at every start: a sequence is run
// alone through the largest shape, then in a crowd through each shape.
func invariantShapes(d *device) ([]shape, error) {
	weights, err := probeWeights(d.cfg)
	if err != nil {
		return nil, err
	}
	if err := d.load(weights); err != nil {
		return nil, err
	}
	base := shape{maxRows, 1}
	want, err := probe(d, base, 0, false)
	if err != nil {
		return nil, err
	}
	var shapes []shape
	for _, n := range []int{8, 16, 32, maxRows} {
		for _, chunk := range []int{1, maxChunk} {
			s := shape{n, min(chunk, n)}
			got, err := probe(d, s, d.rows-2, true)
			if err != nil {
				return nil, err
			}
			if slices.Equal(got, want) || s == base {
				shapes = append(shapes, s)
			}
		}
	}
	d.reset()
	return shapes, nil
}

// probeWeights are start weights of the model, large enough that every bit counts.
func probeWeights(cfg qwen3.Config) ([]qwen3.Tensor, error) {
	cfg.InitializerRange = max(cfg.InitializerRange, 0.1)
	return qwen3.InitialTensors(cfg, 1)
}

// probe runs a fixed sequence through steps of one shape and returns the bits of
// what each of its tokens yields. With a crowd, all other rows of the step are
// busy with other sequences.
func probe(d *device, s shape, row int, crowd bool) ([]uint64, error) {
	d.reset()
	tokens := make([]int32, probeTokens)
	for i := range tokens {
		tokens[i] = int32((7 + 31*i) % d.cfg.VocabSize)
	}
	st := newStep(s.n, s.chunk, d.rows)
	var bits []uint64
	for at := 0; at < len(tokens); {
		n := min(s.chunk, len(tokens)-at)
		var feeds []feed
		if crowd {
			feeds = bystanders(d, s.n-n, row, at)
		}
		feeds = append(feeds, feed{row: row, tokens: tokens[at : at+n], position: at, uniform: 0.5, scale: 1})
		st.fill(feeds, d.rows, d.length)
		if err := d.run(st); err != nil {
			return nil, fmt.Errorf("step of %d tokens: %w", s.n, err)
		}
		for i := feeds[len(feeds)-1].last - n + 1; n > 0; i, n, at = i+1, n-1, at+1 {
			bits = append(bits, uint64(st.sampled[i])<<32|uint64(math.Float32bits(st.logprobs[i])))
		}
	}
	return bits, nil
}

// bystanders feeds one token each to at most n rows other than the given one.
func bystanders(d *device, n, except, position int) []feed {
	var feeds []feed
	for row := 0; row < d.rows-1 && len(feeds) < n; row++ {
		if row != except {
			token := int32((row*13 + position) % d.cfg.VocabSize)
			feeds = append(feeds, feed{row: row, tokens: []int32{token}, position: position, uniform: 0.25, scale: 0.5})
		}
	}
	return feeds
}
