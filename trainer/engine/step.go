package engine

import (
	"slices"
	"sync/atomic"
)

// feed is the part of one sequence that a step processes.
type feed struct {
	blocks   []int32 // numbers of the blocks of the sequence, up to the block of the last of tokens
	tokens   []int32 // next tokens of the context, at most the step's chunk
	position int     // of tokens[0]
	uniform  float32 // selects the token after the last of tokens
	scale    float32
	greedy   float32
	every    bool // sample after each of tokens, not only after the last
	// last is the index of the output that follows the last of tokens. fill sets it.
	last int
}

// step holds the inputs and outputs of one device pass over n tokens, at most chunk
// of them from one sequence. The buffers are used for many passes.
type step struct {
	n, chunk, width int
	ints            []int32   // [5, n]
	attention       []int32   // [2, chunk, n]
	floats          []float32 // [3, n]
	tables          []float32 // [n, 1, width]

	tokens, rows, columns, positions, answers []int32 // parts of ints
	queries, lengths                          []int32 // parts of attention
	uniform, scale, greedy                    []float32

	feeds []feed // the feeds that fill returns

	sampled  []int32   // [n], out
	logprobs []float32 // [n], out
	// logits are filled where a request is sampled on the host: [n, vocabulary], out.
	logits     []float32
	wantLogits bool
}

// newStep allocates the buffers for a device with tables of a width.
func newStep(sh shape, width int) *step {
	n, queries := sh.n, sh.n*sh.chunk
	s := &step{
		n: n, chunk: sh.chunk, width: width,
		ints: make([]int32, 5*n), attention: make([]int32, 2*queries), floats: make([]float32, 3*n),
		tables: make([]float32, n*width), sampled: make([]int32, n), logprobs: make([]float32, n),
	}
	s.tokens, s.rows, s.columns, s.positions, s.answers = s.ints[:n], s.ints[n:2*n], s.ints[2*n:3*n], s.ints[3*n:4*n], s.ints[4*n:]
	s.queries, s.lengths = s.attention[:queries], s.attention[queries:]
	s.uniform, s.scale, s.greedy = s.floats[:n], s.floats[n:2*n], s.floats[2*n:]
	return s
}

// newNativeStep is newStep for a native pass, which takes the feeds directly.
func newNativeStep(n int) *step {
	return &step{n: n, sampled: make([]int32, n), logprobs: make([]float32, n)}
}

// fill writes the feeds into the inputs. The rest of the n tokens is padding; its keys and
// values go to places from padding on, to which no query attends.
func (s *step) fill(feeds []feed, padding int) {
	s.feeds = feeds
	if s.attention == nil {
		s.n = 0
		for f := range feeds {
			s.n += len(feeds[f].tokens)
			feeds[f].last = s.n - 1
		}
		return
	}
	clear(s.attention)
	i := 0
	for row := range feeds {
		fd := &feeds[row]
		table := s.tables[row*s.width : (row+1)*s.width]
		table[0] = float32(fd.position)
		for b, id := range fd.blocks {
			table[1+b] = float32(id)
		}
		for c, token := range fd.tokens {
			at, position := c*s.n+row, fd.position+c
			s.tokens[i], s.positions[i], s.answers[i] = token, int32(position), int32(at)
			s.place(i, int(fd.blocks[position/blockTokens])*blockTokens+position%blockTokens)
			s.queries[at], s.lengths[at] = int32(i), int32(c+1)
			s.uniform[i], s.scale[i], s.greedy[i] = fd.uniform, fd.scale, fd.greedy
			i++
		}
		fd.last = i - 1
	}
	for ; i < s.n; i++ {
		s.tokens[i], s.positions[i], s.answers[i] = 0, 0, 0
		s.place(i, padding+i)
		s.uniform[i], s.scale[i], s.greedy[i] = 0, 1, 1
	}
}

// place returns where in the caches the keys and values of the i-th token go.
func (s *step) place(i, at int) { s.rows[i], s.columns[i] = int32(at/s.width), int32(at%s.width) }

// shape is the size of a step graph.
type shape struct{ n, chunk int }

// smallestShape returns the smallest shape for a number of tokens and the longest feed.
func smallestShape(shapes []shape, tokens, longest int) shape {
	i := slices.IndexFunc(shapes, func(s shape) bool { return s.n >= tokens && s.chunk >= longest })
	return shapes[i]
}

// maxBusyRows is the last bucket of the histogram of busy rows.
const maxBusyRows = 1024

// busyRows counts passes by the number of requests that they served. A row that feeds a part
// of a prompt is as busy as one that samples.
type busyRows struct{ passes [maxBusyRows + 1]atomic.Int64 }

// add counts a pass that served n requests.
func (b *busyRows) add(requests int) { b.passes[min(requests, maxBusyRows)].Add(1) }

// PassesByRows returns the passes since the start by the number of requests that they served,
// from 0 on, over all shards.
func (e *Engine) PassesByRows() []int64 {
	var out []int64
	for _, s := range e.shards {
		for i := range s.stats.busy.passes {
			n := s.stats.busy.passes[i].Load()
			if n == 0 {
				continue
			}
			for len(out) <= i {
				out = append(out, 0)
			}
			out[i] += n
		}
	}
	return out
}
