package decodeloop

import "slices"

// Buckets are the sizes for which there are programs. There is a decoding program for each of
// Contexts, and a prefill for each of Chunks times 0 and Contexts.
//
// Every decoding call has as many rows as there are slots, and every prefill as many tokens: a
// backend may choose another kernel, with other last bits, for products of another size, and
// then the company of a request would decide about them.
type Buckets struct {
	Slots    int   // rows of a decoding call
	Contexts []int // tokens that the cache holds of a sequence
	Chunks   []int // tokens of a row of a prefill
	Ahead    int   // tokens that a decoding call makes of each sequence
}

// maxPrefill is the number of tokens of a prefill with rows of its longest chunk; all prefills have as
// many, in more and shorter rows.
const maxPrefill = 256

// copyRows is the number of blocks that one call copies.
const copyRows = 16

// newBuckets chooses sizes that grow fourfold for chunks, and twofold for contexts, since attention
// reads all of them.
func newBuckets(c Config) Buckets {
	b := Buckets{Slots: c.Slots, Ahead: c.Ahead}
	most := blocksOf(c.MaxContext) * BlockTokens
	for n := 128; n < most; n *= 2 {
		b.Contexts = append(b.Contexts, n)
	}
	b.Contexts = append(b.Contexts, most)
	for n := 16; n <= maxPrefill; n *= 4 {
		b.Chunks = append(b.Chunks, n)
	}
	return b
}

// Programs is the largest number of programs: programs that decode, that return logits and
// that prefill, and the program that copies.
func (b Buckets) Programs() int {
	return 2*len(b.Contexts) + len(b.Chunks)*(1+len(b.Contexts)) + 1
}

// MaxChunk is the most tokens of a row of a prefill.
func (b Buckets) MaxChunk() int { return b.Chunks[len(b.Chunks)-1] }

// atLeast is the smallest bucket for n.
func atLeast(buckets []int, n int) int {
	i := slices.IndexFunc(buckets, func(b int) bool { return b >= n })
	if i < 0 {
		return buckets[len(buckets)-1]
	}
	return buckets[i]
}

// decode is the size of a call for slots.
func (b Buckets) decode(slots []Slot) size {
	longest := 0
	for _, s := range slots {
		longest = max(longest, s.Position)
	}
	return size{kind: decode, rows: b.Slots, chunk: b.Ahead, length: atLeast(b.Contexts, longest)}
}

// batch is one prefill.
type batch struct {
	size   size
	chunks []Chunk
}

// prefills deals chunks into calls, chunks of like length together.
func (b Buckets) prefills(chunks []Chunk) []batch {
	chunks = slices.Clone(chunks)
	slices.SortStableFunc(chunks, func(x, y Chunk) int { return len(y.Tokens) - len(x.Tokens) })
	var out []batch
	for len(chunks) > 0 {
		s := size{kind: prefill, chunk: atLeast(b.Chunks, len(chunks[0].Tokens))}
		s.rows = b.MaxChunk() / s.chunk
		n := min(s.rows, len(chunks))
		for _, c := range chunks[:n] {
			if c.Position > 0 {
				s.length = max(s.length, atLeast(b.Contexts, c.Position))
			}
		}
		out = append(out, batch{s, chunks[:n]})
		chunks = chunks[n:]
	}
	return out
}
