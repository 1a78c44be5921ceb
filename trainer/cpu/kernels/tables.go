package kernels

import (
	"math"
	"sync"

	"temper/trainer/cpu/attention"
)

// BlockTokens is the number of tokens in a block of a cache that tables describe.
const BlockTokens = 16

// attentionFunc is the function that the backend calls for the heads that share one head of
// keys and values. In a call with a bias, the bias is a table: the position of the first
// query, then the numbers of the blocks that hold the keys, in order. kvLimit counts the
// queries from the first one to this one, and the block size is BlockTokens.
//
// A bias of one number is an operation of package attention instead, over all of q, k and v
// (its header). The offset of the query divided by its dimension is then the number of the
// part.
//
// No graph of this program has another bias.
type attentionFunc func(q, k, v, output []float32, qOff, kvOff, qSeqStride, kvSeqStride, qGroupStride int,
	additiveMask []float32, booleanMask []bool, maskGroupStride int, additiveBias []float32, biasGroupStride int,
	scores []float32, groupSize, seqLen, kvLen, headDim int, scale float32, causal bool, qLimit, kvLimit int) bool

// withTables returns an attention that also reads tables, with the bits of inner over a
// contiguous cache. inner is nil where the backend has no kernel and adds term by term. fast
// may be nil; it reports whether it computed the answer. blocks compute the attention of whole
// sequences.
func withTables(inner attentionFunc, fast func(*lookup) bool, blocks *attention.Kernels) attentionFunc {
	fallback := inner.whole()
	pool := sync.Pool{New: func() any { return new(lookup) }}
	return func(q, k, v, output []float32, qOff, kvOff, qSeqStride, kvSeqStride, qGroupStride int,
		additiveMask []float32, booleanMask []bool, maskGroupStride int, additiveBias []float32, biasGroupStride int,
		scores []float32, groupSize, seqLen, kvLen, headDim int, scale float32, causal bool, qLimit, kvLimit int) bool {
		if additiveBias == nil {
			return inner != nil && inner(q, k, v, output, qOff, kvOff, qSeqStride, kvSeqStride, qGroupStride,
				additiveMask, booleanMask, maskGroupStride, additiveBias, biasGroupStride,
				scores, groupSize, seqLen, kvLen, headDim, scale, causal, qLimit, kvLimit)
		}
		if len(additiveBias) == 1 {
			blocks.Call(attention.Operation(additiveBias[0]), qOff/headDim, q, k, v, output, fallback)
			return true
		}
		if kvLimit == 0 {
			for g := range groupSize {
				clear(output[qOff+g*qGroupStride:][:headDim])
			}
			return true
		}
		l := pool.Get().(*lookup)
		defer pool.Put(l)
		l.q, l.k, l.v, l.output = q, k, v, output
		l.query, l.queryStride, l.queries, l.dim = qOff, qGroupStride, groupSize, headDim
		l.head, l.stride, l.scale = kvOff%kvSeqStride, kvSeqStride, scale
		l.n, l.blocks = int(additiveBias[0])+kvLimit, additiveBias[1:]
		if fast == nil || !fast(l) {
			l.attend(inner)
		}
		l.q, l.k, l.v, l.output, l.blocks = nil, nil, nil, nil, nil
		return true
	}
}

// whole returns f as a Fallback for the queries of a sequence; nil for no kernel.
func (f attentionFunc) whole() attention.Fallback {
	if f == nil {
		return nil
	}
	return func(q, k, v, out []float32, qAt, kvAt, qStride, kvStride, groupStride, groups, n, dim int, scale float32) bool {
		return f(q, k, v, out, qAt, kvAt, qStride, kvStride, groupStride, nil, nil, 0, nil, 0, make([]float32, n),
			groups, n, n, dim, scale, true, n, n)
	}
}

// lookup is one query's attention, for the heads that share a head of keys and values.
type lookup struct {
	q, k, v, output             []float32
	query, queryStride, queries int // offset of the heads of the query in q and output, and their number
	head, stride                int // offset of the head in a token of k and v, and the size of a token
	dim, n                      int // of a head, and the number of keys
	scale                       float32
	blocks                      []float32

	scores, keys, values []float32 // scratch
}

// place returns the offset of the head of the i-th key in k and v.
func (l *lookup) place(i int) int {
	return (int(l.blocks[i/BlockTokens])*BlockTokens+i%BlockTokens)*l.stride + l.head
}

// attend copies the keys and values to contiguous memory and calls inner.
func (l *lookup) attend(inner attentionFunc) {
	l.scores = grow(l.scores, l.n*l.queries)
	l.keys, l.values = grow(l.keys, l.n*l.dim), grow(l.values, l.n*l.dim)
	for i := range l.n {
		at := l.place(i)
		copy(l.keys[i*l.dim:][:l.dim], l.k[at:])
		copy(l.values[i*l.dim:][:l.dim], l.v[at:])
	}
	if inner == nil || !inner(l.q, l.keys, l.values, l.output, l.query, 0, l.queryStride, l.dim, l.queryStride,
		nil, nil, 0, nil, 0, l.scores, l.queries, 1, l.n, l.dim, l.scale, false, 1, l.n) {
		for g := range l.queries {
			l.addTermByTerm(l.query + g*l.queryStride)
		}
	}
}

// addTermByTerm answers the query at an offset in the order of the backend's attention
// without a kernel.
func (l *lookup) addTermByTerm(at int) {
	q, scores := l.q[at:][:l.dim], l.scores[:l.n]
	highest := float32(math.Inf(-1))
	for i := range scores {
		var dot float32
		for d, key := range l.keys[i*l.dim:][:l.dim] {
			dot += q[d] * key
		}
		scores[i] = dot * l.scale
		highest = max(highest, scores[i])
	}
	var sum float32
	for i := range scores {
		scores[i] = float32(math.Exp(float64(scores[i] - highest)))
		sum += scores[i]
	}
	inverse := 1 / sum
	for i := range scores {
		scores[i] *= inverse
	}
	for d := range l.dim {
		var acc float32
		for i, weight := range scores {
			acc += weight * l.values[i*l.dim+d]
		}
		l.output[at+d] = acc
	}
}

// grow returns a slice of n numbers, s itself if it is large enough.
func grow(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n+n/2)
	}
	return s[:n]
}
