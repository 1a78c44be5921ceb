package attention

import "math"

// A call describes the attention of a batch of rows to the CPU backend's hook, which accepts
// only slices of float32. All numbers are small integers, so they are exact.
//
// The header is [5] numbers, followed by the segment of each token of the batch if rows have
// several: [5 + B*T].
const (
	headerBatch  = iota // B
	headerTokens        // T of a row
	headerHeads         // H of queries
	headerKV            // K of keys and values
	headerDim           // E
	// HeaderSize is the offset of the segments.
	HeaderSize
)

// Header returns the header of a call without segments.
func Header(batch, tokens, heads, kv, dim int) []float32 {
	return []float32{headerBatch: float32(batch), headerTokens: float32(tokens), headerHeads: float32(heads), headerKV: float32(kv), headerDim: float32(dim)}
}

// Operation of a call.
type Operation int

// The operations. Queries are [B*T, H, E], keys and values [B*T, K, E], answers as queries.
const (
	// Answer takes the queries, and keys then values. It fills the answers.
	Answer Operation = 1
	// Gradient takes queries, keys, values, one behind the other, and the gradient with
	// respect to the answers. It fills the gradients as it takes them.
	Gradient Operation = 2
)

// Fallback computes answers with the CPU backend's kernel, over n tokens from an offset. It
// reports false when the backend has no kernel.
type Fallback func(q, k, v, out []float32, qAt, kvAt, qStride, kvStride, groupStride, groups, n, dim int, scale float32) bool

// Call computes part i of B*K of an operation: the heads of one row that share one head of
// keys and values. Parts write to different places of out and may run concurrently.
func (k *Kernels) Call(op Operation, i int, x, y, header, out []float32, fallback Fallback) {
	c := newCall(header)
	scale := float32(1 / math.Sqrt(float64(c.dim)))
	row, kv := i/c.kv, i%c.kv
	for from := row * c.tokens; from < (row+1)*c.tokens; {
		n := c.segment(header, from, (row+1)*c.tokens)
		if op == Answer {
			k.answerPart(c, from, n, kv, x, y, out, scale, fallback)
		} else {
			s := c.sequence(from, n, kv, x[:c.queries], x[c.queries:][:c.keys], x[c.queries+c.keys:], scale)
			s.AnswersGrad = c.group(y, from, kv)
			s.QueriesGrad = c.group(out, from, kv)
			s.KeysGrad, s.ValuesGrad = c.one(out[c.queries:], from, kv), c.one(out[c.queries+c.keys:], from, kv)
			k.Gradient(&s)
		}
		from += n
	}
}

// answerPart answers the queries of a segment.
func (k *Kernels) answerPart(c call, from, n, kv int, x, y, out []float32, scale float32, fallback Fallback) {
	s := c.sequence(from, n, kv, x, y[:c.keys], y[c.keys:], scale)
	s.Answers = c.group(out, from, kv)
	if k.Answer(&s) {
		return
	}
	groups := c.heads / c.kv
	if fallback != nil && fallback(x, y[:c.keys], y[c.keys:], out, (from*c.heads+kv*groups)*c.dim, (from*c.kv+kv)*c.dim,
		c.heads*c.dim, c.kv*c.dim, c.dim, groups, n, c.dim, scale) {
		return
	}
	answerScalar(&s)
}

// call holds the dimensions of a header.
type call struct {
	tokens, heads, kv, dim int
	queries, keys          int // numbers of all queries, and of all keys
	segments               bool
}

func newCall(h []float32) call {
	c := call{tokens: int(h[headerTokens]), heads: int(h[headerHeads]), kv: int(h[headerKV]), dim: int(h[headerDim]), segments: len(h) > HeaderSize}
	n := int(h[headerBatch]) * c.tokens * c.dim
	c.queries, c.keys = n*c.heads, n*c.kv
	return c
}

// segment returns the number of tokens from one on in the same segment, up to an end.
func (c call) segment(header []float32, from, end int) int {
	if !c.segments {
		return end - from
	}
	ids, n := header[HeaderSize:], 1
	for from+n < end && ids[from+n] == ids[from] {
		n++
	}
	return n
}

// sequence returns the input of one head of keys and values.
func (c call) sequence(from, n, kv int, q, k, v []float32, scale float32) Sequence {
	return Sequence{Tokens: n, Dim: c.dim, Scale: scale, Queries: c.group(q, from, kv), Keys: c.one(k, from, kv), Values: c.one(v, from, kv)}
}

// group returns the heads of queries that share a head of keys, from a token on.
func (c call) group(x []float32, from, kv int) []Rows {
	groups := c.heads / c.kv
	out := make([]Rows, groups)
	for g := range out {
		out[g] = Rows{x[(from*c.heads+kv*groups+g)*c.dim:], c.heads * c.dim}
	}
	return out
}

// one returns a head of keys or values from a token on.
func (c call) one(x []float32, from, kv int) Rows {
	return Rows{x[(from*c.kv+kv)*c.dim:], c.kv * c.dim}
}
