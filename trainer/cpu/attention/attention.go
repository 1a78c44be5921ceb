package attention

// Kernels are the functions that compute a block. Kernels of different processors add in
// different orders.
type Kernels struct {
	// answer computes the answers to all queries of a sequence; nil leaves that to the backend.
	// It reports false for unsupported sizes of heads.
	answer func(s *Sequence, w *workspace) bool
	// product computes a matrix product; see the type.
	product func(p product)
	// soften multiplies the first n numbers of a row by scale, replaces them by their softmax,
	// and sets the others to zero.
	soften func(row []float32, n int, scale float32)
	// pull replaces the gradient dp with respect to the first n weights p by the gradient with
	// respect to the scores, p (dp - sum p dp), times scale, and sets the others to zero.
	pull func(dp, p []float32, n int, scale float32)
}

// Rows are vectors of equal size at equal distances: one head of several tokens.
type Rows struct {
	Data   []float32 // starts at the first row
	Stride int
}

// Sequence is one head of keys and values, and the heads of queries that share it. Each token
// attends to itself and to the tokens before it.
type Sequence struct {
	Tokens, Dim int
	Scale       float32
	Queries     []Rows // by head of the group
	Keys        Rows
	Values      Rows
	Answers     []Rows // by head of the group; set by Answer
	// Gradients with respect to the answers, and, set by Gradient, with respect to queries, keys
	// and values.
	AnswersGrad          []Rows
	QueriesGrad          []Rows
	KeysGrad, ValuesGrad Rows
}

// Answer computes the answers. It reports false, and does nothing, when the CPU backend has to
// compute them.
func (k *Kernels) Answer(s *Sequence) bool {
	if k.answer == nil {
		return false
	}
	w := take()
	defer give(w)
	return k.answer(s, w)
}

// Gradient computes the gradients with respect to queries, keys and values:
//
//	dV = P^T dO,  dP = dO V^T,  dS = scale P (dP - sum dP P),  dQ = dS K,  dK = dS^T Q
//
// for the weights P, which it computes again.
func (k *Kernels) Gradient(s *Sequence) {
	w := take()
	defer give(w)
	for i := range s.Tokens {
		clear(s.KeysGrad.Data[i*s.KeysGrad.Stride:][:s.Dim])
		clear(s.ValuesGrad.Data[i*s.ValuesGrad.Stride:][:s.Dim])
	}
	b := newBlocks(k, s, w)
	for head := range s.Queries {
		for from := 0; from < s.Tokens; from += b.size {
			b.gradient(head, from, min(b.size, s.Tokens-from))
		}
	}
}

// Queries of a block. A product takes six rows at a time. With the smaller size two
// blocks of scores of 2,048 keys stay in the second-level cache.
const (
	largeBlock  = 48
	smallBlock  = 24
	largeTokens = 1024 // up to which blocks are large
)

// tileKeys is the number of keys in a tile, and apart keeps the rows of a block out of the
// same lines of the cache.
const (
	tileKeys = 64
	apart    = 16
)

// blocks computes gradients of a sequence.
type blocks struct {
	k      *Kernels
	s      *Sequence
	size   int
	stride int // of scores
	// keys and values by tile: [tiles, Dim, tileKeys], zero behind the last token.
	keys, values []float32
	weights      []float32 // [size, stride]
	scoresGrad   []float32 // [size, stride]
}

func newBlocks(k *Kernels, s *Sequence, w *workspace) *blocks {
	b := &blocks{k: k, s: s, size: largeBlock}
	if s.Tokens > largeTokens {
		b.size = smallBlock
	}
	tiles := (s.Tokens + tileKeys - 1) / tileKeys
	b.stride = tiles*tileKeys + apart
	b.keys = grow(&w.keys, tiles*s.Dim*tileKeys)
	b.values = grow(&w.values, tiles*s.Dim*tileKeys)
	b.weights = grow(&w.weights, b.size*b.stride)
	b.scoresGrad = grow(&w.scoresGrad, b.size*b.stride)
	turn(b.keys, s.Keys, s.Tokens, s.Dim, tileKeys)
	turn(b.values, s.Values, s.Tokens, s.Dim, tileKeys)
	return b
}

// gradient adds the contribution of n queries from one on.
func (b *blocks) gradient(head, from, n int) {
	s, end := b.s, from+n
	q, do := s.Queries[head].from(from), s.AnswersGrad[head].from(from)
	b.byTile(b.weights, q, b.keys, n, end)
	b.byTile(b.scoresGrad, do, b.values, n, end)
	for r := range n {
		p, dp := b.weights[r*b.stride:][:end], b.scoresGrad[r*b.stride:][:end]
		b.k.soften(p, from+r+1, s.Scale)
		b.k.pull(dp, p, from+r+1, s.Scale)
	}
	weights, ds := Rows{b.weights, b.stride}, Rows{b.scoresGrad, b.stride}
	b.k.multiply(s.QueriesGrad[head].from(from), ds, s.Keys, n, s.Dim, end, false)
	b.addTransposed(s.ValuesGrad, weights, do, n, end)
	b.addTransposed(s.KeysGrad, ds, q, n, end)
}

// byTile computes x [n, Dim] times tiles: out [n, end], and some numbers behind.
func (b *blocks) byTile(out []float32, x Rows, tiles []float32, n, end int) {
	for at := 0; at < end; at += tileKeys {
		b.k.multiply(Rows{out[at:], b.stride}, x, Rows{tiles[at*b.s.Dim:], tileKeys}, n, tileKeys, b.s.Dim, false)
	}
}

// addTransposed adds x [n, end] transposed times y [n, Dim] to out [end, Dim].
func (b *blocks) addTransposed(out, x, y Rows, n, end int) {
	b.k.product(product{
		x: x.Data, xRow: 1, xStep: x.Stride, y: y.Data, yStep: y.Stride, out: out.Data, outRow: out.Stride,
		rows: end, columns: b.s.Dim, depth: n, add: true,
	})
}

// multiply computes x [rows, depth] times y [depth, columns].
func (k *Kernels) multiply(out, x, y Rows, rows, columns, depth int, add bool) {
	k.product(product{
		x: x.Data, xRow: x.Stride, xStep: 1, y: y.Data, yStep: y.Stride, out: out.Data, outRow: out.Stride,
		rows: rows, columns: columns, depth: depth, add: add,
	})
}

// product computes out [rows, columns] = x [rows, depth] y [depth, columns], or adds that to
// out. Distances are in numbers. Each sum is one chain.
type product struct {
	x, y, out            []float32
	xRow, xStep          int
	yStep, outRow        int
	rows, columns, depth int
	add                  bool
}

// from returns the rows from one on.
func (r Rows) from(i int) Rows { return Rows{r.Data[i*r.Stride:], r.Stride} }

// turn transposes rows in groups: dst [groups, dim, group], zero behind the last row.
func turn(dst []float32, x Rows, tokens, dim, group int) {
	for at := 0; at < tokens; at += group {
		part, n := dst[at*dim:][:dim*group], min(group, tokens-at)
		for i := range n {
			for d, v := range x.Data[(at+i)*x.Stride:][:dim] {
				part[d*group+i] = v
			}
		}
		for d := range dim {
			clear(part[d*group+n:][:group-n])
		}
	}
}
