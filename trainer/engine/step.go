package engine

import "slices"

// feed is the part of one sequence that a step processes.
type feed struct {
	row      int     // cache row
	tokens   []int32 // next tokens of the context, at most the step's chunk
	position int     // of tokens[0]
	uniform  float32 // selects the token after the last of tokens
	scale    float32
	greedy   float32
	// last is the index, among the outputs of the step, of what follows the last of
	// tokens. fill sets it.
	last int
}

// step holds the inputs and outputs of one device pass over n tokens, at most chunk
// of them from one sequence. The buffers are used for many passes.
type step struct {
	n, chunk  int
	ints      []int32   // [4, n]
	attention []int32   // [2, chunk, rows]
	floats    []float32 // [3, n]

	tokens, rows, positions, answers []int32 // parts of ints
	queries, lengths                 []int32 // parts of attention
	uniform, scale, greedy           []float32

	sampled  []int32   // [n], out
	logprobs []float32 // [n], out
}

// newStep allocates the buffers for a device with the given number of cache rows.
func newStep(n, chunk, cacheRows int) *step {
	s := &step{
		n: n, chunk: chunk,
		ints: make([]int32, 4*n), attention: make([]int32, 2*chunk*cacheRows), floats: make([]float32, 3*n),
		sampled: make([]int32, n), logprobs: make([]float32, n),
	}
	s.tokens, s.rows, s.positions, s.answers = s.ints[:n], s.ints[n:2*n], s.ints[2*n:3*n], s.ints[3*n:]
	s.queries, s.lengths = s.attention[:chunk*cacheRows], s.attention[chunk*cacheRows:]
	s.uniform, s.scale, s.greedy = s.floats[:n], s.floats[n:2*n], s.floats[2*n:]
	return s
}

// fill writes the feeds into the inputs. The rest of the n tokens is padding; it goes
// to the last row of the cache, which no query attends to.
func (s *step) fill(feeds []feed, cacheRows, cacheLength int) {
	clear(s.attention)
	i := 0
	for f := range feeds {
		fd := &feeds[f]
		for c, token := range fd.tokens {
			at := c*cacheRows + fd.row
			s.tokens[i], s.rows[i], s.positions[i] = token, int32(fd.row), int32(fd.position+c)
			s.answers[i] = int32(at)
			s.queries[at], s.lengths[at] = int32(i), int32(fd.position+c+1)
			s.uniform[i], s.scale[i], s.greedy[i] = fd.uniform, fd.scale, fd.greedy
			i++
		}
		fd.last = i - 1
	}
	for ; i < s.n; i++ {
		s.tokens[i], s.rows[i], s.positions[i] = 0, int32(cacheRows-1), int32(i%cacheLength)
		s.answers[i] = int32(cacheRows - 1)
		s.uniform[i], s.scale[i], s.greedy[i] = 0, 1, 1
	}
}

// shape is the size of a step graph.
type shape struct{ n, chunk int }

// smallestShape returns the smallest shape that holds the number of tokens and the
// longest feed.
func smallestShape(shapes []shape, tokens, longest int) shape {
	i := slices.IndexFunc(shapes, func(s shape) bool { return s.n >= tokens && s.chunk >= longest })
	return shapes[i]
}
