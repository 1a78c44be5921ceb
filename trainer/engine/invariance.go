package engine

import (
	"fmt"
	"math"
	"slices"

	"temper/trainer/cpu/decode"
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
)

// maxRows is the number of tokens in the largest step. With so many the CPU kernels run at
// full speed, and all products of a small model still use the kernel for small matrices,
// which rounds every row alike.
const maxRows = 64

// maxChunk bounds the tokens of one sequence in a step.
const maxChunk = 16

// probeTokens is the length of the sequence that compares the shapes. It is longer than a
// chunk, and longer than a vector of the attention kernel.
const probeTokens = 18

// Bounds of the network that checks the engines of large networks. It has fewer layers with
// the same sizes: the sizes alone decide a layer's kernels and bits.
const (
	probeLayers  = 2
	probeLength  = 512
	probeSlots   = maxRows + 2
	probeVocab   = 4096      // for the comparison of the native pass
	smallNetwork = 256 << 20 // bytes of weights below which the network itself is checked
)

// reduced returns the configuration on which an engine is checked; full reports that cfg was
// small enough to use.
func reduced(cfg Config) (small Config, full bool) {
	if 4*cfg.Model.NumParameters() < smallNetwork {
		return cfg, true
	}
	cfg.Model.NumHiddenLayers = min(cfg.Model.NumHiddenLayers, probeLayers)
	cfg.MaxContext = min(cfg.MaxContext, probeLength)
	cfg.Capacity = min(cfg.Capacity, cfg.Shards*probeSlots*2*blockTokens)
	return cfg, false
}

// shapesOf returns the step shapes whose results are bit-identical to the results of the
// largest shape, in any row of a step and beside any other sequence. A backend may choose a
// kernel by size, so every start tests that on the device: a sequence runs alone through the
// largest shape, and then among others through each shape. For a large network the probe
// runs only the first layers, on a second device.
func shapesOf(cfg Config, d *device) ([]shape, error) {
	if small, full := reduced(cfg); !full {
		var err error
		if d, err = openDevice(small); err != nil {
			return nil, err
		}
	}
	if err := d.load(probeWeights(d.cfg)); err != nil {
		return nil, err
	}
	base := shape{maxRows, 1}
	want, err := probe(d, base, false)
	if err != nil {
		return nil, err
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

// nativeShape bounds a native pass. It takes any smaller number of tokens.
var nativeShape = shape{maxRows, maxRows}

// nativeWorks reports whether devices may compute without a graph: whether that gives the bits
// of the graph, for one token at a time and for several, alone and among other sequences.
func nativeWorks(cfg Config) (bool, error) {
	if cfg.Graph || !cpuBackend(cfg.Backend) || decode.BlockTokens != blockTokens || decode.Check(cfg.Model, cfg.Kernels) != nil {
		return false, nil
	}
	small, full := reduced(cfg)
	if !full {
		small.Model.VocabSize = min(small.Model.VocabSize, probeVocab)
	}
	graph, err := openDevice(small)
	if err != nil {
		return false, err
	}
	weights := probeWeights(small.Model)
	if err := graph.load(weights); err != nil {
		return false, err
	}
	want, err := probe(graph, shape{maxRows, 1}, false)
	if err != nil {
		return false, err
	}
	d := newNativeDevice(small)
	if weights.net, err = decode.NewNetwork(small.Model, small.Kernels, decode.LayoutOf(cfg.Model), weights.weights); err != nil {
		return false, err
	}
	if err := d.load(weights); err != nil {
		return false, err
	}
	for _, s := range []shape{{1, 1}, {7, 7}, {maxRows, 1}, {maxRows, maxChunk}} {
		got, err := probe(d, s, s.n > 1)
		if err != nil || !slices.Equal(got, want) {
			return false, err
		}
	}
	return true, nil
}

// probeWeights returns weights large enough that a difference in any sum reaches the result.
func probeWeights(cfg model.Config) *swap {
	cfg.InitializerRange = max(cfg.InitializerRange, 0.1)
	weights, err := model.InitialTensors(cfg, 1)
	if err != nil {
		panic(err) // the configuration was validated
	}
	for i, spec := range cfg.Tensors() {
		for k := range weights[i].Data {
			if spec.IsBias() {
				weights[i].Data[k] = float32(k%7-3) / 16
			}
		}
	}
	return &swap{weights: tensor.StoredByName(weights)}
}

// probe runs a fixed sequence through steps of one shape, and returns the bits of the
// samples for each token. With a crowd, the other tokens of a step belong to other sequences,
// and the blocks of this sequence are neither first nor in order.
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

// bystanders feeds one token to each of at most n sequences of two blocks, and leaves the last
// two blocks free.
func bystanders(d *device, n, position int) []feed {
	var feeds []feed
	for i := int32(0); int(2*i+4) <= d.blocks && len(feeds) < n; i++ {
		token := (i*13 + int32(position)) % int32(d.cfg.VocabSize)
		feeds = append(feeds, feed{blocks: []int32{2*i + 1, 2 * i}, tokens: []int32{token}, position: position, uniform: 0.25, scale: 0.5})
	}
	return feeds
}
