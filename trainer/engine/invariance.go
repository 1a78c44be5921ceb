package engine

import (
	"fmt"
	"math"
	"slices"

	"temper/trainer/qwen3"
)

// maxRows is the number of tokens in the largest step. With so many the CPU kernels
// run at full speed, and all products of a small model still use the kernel for
// small matrices, which rounds every row alike.
const maxRows = 64

// maxChunk bounds the tokens of one sequence in a step.
const maxChunk = 16

// probeTokens is the length of the sequence on which the shapes are compared. It is
// more than a chunk, and more than a vector of the attention kernel.
const probeTokens = 18

// invariantShapes returns the step shapes whose results are bit-identical to
// those of the largest shape, whatever row a sequence is in and whatever runs beside
// it. A backend is free to choose a kernel by size, so the claim is tested on the
// device itself at every start: a sequence runs alone through the largest shape, and
// then among others through each shape.
func invariantShapes(d *device) ([]shape, error) {
	weights, err := probeWeights(d.cfg)
	if err != nil {
		return nil, err
	}
	if err := d.load(weights); err != nil {
		return nil, err
	}
	base := shape{maxRows, 1}
	want, err := probe(d, base, false)
	if err != nil {
		return nil, err
	}
	if ok, err := nativeLike(d, weights, want); err != nil || ok {
		return []shape{nativeShape}, err
	}
	var shapes []shape
	for _, n := range []int{8, 16, 32, maxRows} {
		for _, chunk := range []int{1, maxChunk} {
			s := shape{n, min(chunk, n)}
			got, err := probe(d, s, true)
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

// nativeShape bounds a native pass. It takes any number of tokens up to that.
var nativeShape = shape{maxRows, maxRows}

// nativeLike lets a device compute without a graph, if that gives the bits that the
// graph gave: for one token at a time, for several, alone and among others.
func nativeLike(d *device, weights []qwen3.Tensor, want []uint64) (bool, error) {
	if d.graphOnly {
		return false, nil
	}
	d.native = newNative(d)
	if d.native == nil {
		return false, nil
	}
	if err := d.load(weights); err != nil {
		return false, err
	}
	for _, s := range []shape{{1, 1}, {7, 7}, {maxRows, 1}, {maxRows, maxChunk}} {
		got, err := probe(d, s, s.n > 1)
		if err != nil {
			return false, err
		}
		if !slices.Equal(got, want) {
			d.native = nil
			return false, d.load(weights)
		}
	}
	d.store, d.exec, d.full, d.copies = nil, nil, nil, nil // they hold the probe's weights
	d.reset()
	return true, nil
}

// probeWeights are start weights of the model, large enough that a difference in any
// sum reaches the result.
func probeWeights(cfg qwen3.Config) ([]qwen3.Tensor, error) {
	cfg.InitializerRange = max(cfg.InitializerRange, 0.1)
	return qwen3.InitialTensors(cfg, 1)
}

// probe runs a fixed sequence through steps of one shape, and returns for each of its
// tokens the bits of what was sampled. With a crowd, all other tokens of a step belong
// to other sequences, and the blocks of this one are not the first ones nor in order.
func probe(d *device, s shape, crowd bool) ([]uint64, error) {
	d.reset()
	tokens := make([]int32, probeTokens)
	for i := range tokens {
		tokens[i] = int32((7 + 31*i) % d.cfg.VocabSize)
	}
	blocks := []int32{0, 1}
	if crowd {
		blocks = []int32{int32(d.blocks - 1), int32(d.blocks - 2)}
	}
	st := d.newStep(s)
	var bits []uint64
	for at := 0; at < len(tokens); {
		n := min(s.chunk, len(tokens)-at)
		var feeds []feed
		if crowd {
			feeds = bystanders(d, s.n-n, at)
		}
		feeds = append(feeds, feed{blocks: blocks, tokens: tokens[at : at+n], position: at, uniform: 0.5, scale: 1, every: true})
		st.fill(feeds, d.padding())
		if err := d.execute(st); err != nil {
			return nil, fmt.Errorf("step of %d tokens: %w", s.n, err)
		}
		for i := feeds[len(feeds)-1].last - n + 1; n > 0; i, n, at = i+1, n-1, at+1 {
			bits = append(bits, uint64(st.sampled[i])<<32|uint64(math.Float32bits(st.logprobs[i])))
		}
	}
	return bits, nil
}

// bystanders feeds one token each to at most n sequences, two blocks each, and leaves the
// last two blocks alone.
func bystanders(d *device, n, position int) []feed {
	var feeds []feed
	for i := int32(0); int(2*i+4) <= d.blocks && len(feeds) < n; i++ {
		token := (i*13 + int32(position)) % int32(d.cfg.VocabSize)
		feeds = append(feeds, feed{blocks: []int32{2*i + 1, 2 * i}, tokens: []int32{token}, position: position, uniform: 0.25, scale: 0.5})
	}
	return feeds
}
