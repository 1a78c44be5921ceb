package loss_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"temper/trainer/loss"
)

// headCase is a head and hidden states whose logits reach far from zero.
func headCase(tokens, depth, vocab int) (hidden, head [][]float32, targets []int32) {
	draw := rand.New(rand.NewPCG(5, 6))
	matrix := func(n int, scale float64) [][]float32 {
		out := make([][]float32, n)
		for i := range out {
			out[i] = make([]float32, depth)
			for k := range out[i] {
				out[i][k] = float32(scale * draw.NormFloat64())
			}
		}
		return out
	}
	hidden, head, targets = matrix(tokens, 3), matrix(vocab, 1), make([]int32, tokens)
	for i := range targets {
		targets[i] = int32(draw.IntN(vocab))
	}
	targets[0], targets[1] = 0, int32(vocab-1)
	return hidden, head, targets
}

// largest is the size of the largest node of a graph.
func largest(g *graph.Graph) (size int) {
	for _, n := range g.Nodes() {
		if n.NumOutputs() == 1 {
			size = max(size, n.Shape().Size())
		}
	}
	return size
}

// TestChunkedEqualsPlain: log-probabilities, entropies and both gradients are
// those of all logits at once, whatever the chunk, and no node is larger than a
// chunk's logits or the head.
func TestChunkedEqualsPlain(t *testing.T) {
	const tokens, depth, vocab, temperature = 96, 4, 203, 0.7
	hidden, head, targets := headCase(tokens, depth, vocab)
	weights := make([]float32, tokens)
	for i := range weights {
		weights[i] = float32(i%5) - 2
	}
	// Not linear in the log-probabilities.
	finish := func(lp, weights *node) *node {
		return graph.ReduceAllSum(graph.Mul(graph.Exp(graph.MulScalar(lp, 0.1)), weights))
	}
	run := func(chunk int) (out [4][]float32, size int) {
		got := call(t, func(in []*node) []*node {
			var lp, h, total *node
			if chunk == 0 {
				logits := graph.DotGeneral(in[0], []int{1}, nil, in[1], []int{1}, nil)
				lp, h = loss.Logprobs(logits, in[2], temperature)
				total = finish(lp, in[3])
			} else {
				c := loss.NewChunked(in[0], in[1], in[2], temperature, chunk)
				lp, h = c.Logprobs, c.Entropy
				total = c.Surrogate(finish(lp, in[3]))
			}
			total = graph.Add(total, graph.ReduceAllSum(graph.Square(in[1]))) // the head is also used elsewhere, as a tied one is
			grads := graph.Gradient(total, in[0], in[1])
			size = largest(in[0].Graph())
			return []*node{lp, h, grads[0], grads[1]}
		}, hidden, head, targets, weights)
		for i := range out {
			out[i] = flat(t, got[i])
		}
		return out, size
	}
	want, whole := run(0)
	if whole < tokens*vocab {
		t.Fatalf("largest node of the plain path is %d, want all %d logits", whole, tokens*vocab)
	}
	for _, chunk := range []int{1, 16, 50, 203, 500} {
		got, size := run(chunk)
		for i, what := range []string{"log-probability", "entropy", "gradient of the hidden states", "gradient of the head"} {
			for k := range want[i] {
				if math.Abs(float64(got[i][k]-want[i][k])) > 2e-5*max(1, math.Abs(float64(want[i][k]))) {
					t.Fatalf("chunk %d: %s %d is %v, want %v", chunk, what, k, got[i][k], want[i][k])
				}
			}
		}
		if limit := max(tokens*min(chunk, vocab), vocab*depth); size > limit {
			t.Errorf("chunk %d: a node holds %d values, want at most %d", chunk, size, limit)
		}
	}
}

// TestChunkedInHalfPrecision: products of bfloat16 factors, float32 elsewhere.
func TestChunkedInHalfPrecision(t *testing.T) {
	hidden, head, targets := headCase(32, 8, 61)
	for i := range hidden {
		for k := range hidden[i] {
			hidden[i][k] /= 6
		}
	}
	var out [2][]float32
	for i, half := range []bool{false, true} {
		got := call(t, func(in []*node) []*node {
			x := in[0]
			if half {
				x = graph.ConvertDType(x, dtypes.BFloat16)
			}
			c := loss.NewChunked(x, in[1], in[2], 1, 20)
			grads := graph.Gradient(c.Surrogate(graph.ReduceAllSum(c.Logprobs)), in[0], in[1])
			return []*node{graph.Concatenate([]*node{c.Logprobs, c.Entropy, graph.Reshape(grads[0], -1), graph.Reshape(grads[1], -1)}, 0)}
		}, hidden, head, targets)
		out[i] = flat(t, got[0])
	}
	var apart, size float64
	for k := range out[0] {
		apart += math.Pow(float64(out[0][k]-out[1][k]), 2)
		size += math.Pow(float64(out[0][k]), 2)
	}
	if ratio := math.Sqrt(apart / size); ratio > 0.02 || ratio == 0 {
		t.Errorf("half precision differs by %v of the norm, want a little", ratio)
	}
}

func TestChunkSize(t *testing.T) {
	for _, c := range []struct{ most, tokens, vocab, want int }{
		{0, 1 << 20, 1 << 20, 0},             // no bound
		{1000, 10, 100, 0},                   // all of them fit
		{999, 10, 100, 50},                   // in two parts
		{1 << 26, 12288, 151936, 5427},       // 28 parts of 5461 at most
		{1024, 4096, 37, 1},                  // as small as can be
		{1 << 10, 1 << 20, 151936, 594},      // 256 parts
		{100 * 100, 100, 10_000_000, 39_063}, // 256 parts
	} {
		got := loss.ChunkSize(c.most, c.tokens, c.vocab)
		if got != c.want {
			t.Errorf("%+v: chunk %d, want %d", c, got, c.want)
		}
		if chunks := (c.vocab + max(1, got) - 1) / max(1, got); got > 0 && chunks > 256 {
			t.Errorf("%+v: %d chunks", c, chunks)
		}
	}
}
