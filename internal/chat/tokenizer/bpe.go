package tokenizer

// shortPiece is the longest piece for which each merge looks at all ranks. Longer
// pieces use a heap.
const shortPiece = 64

// noMerge is the rank of two tokens that no merge joins.
const noMerge = int32(1<<31 - 1)

// appendPiece applies the merges to one piece in order of rank, leftmost first.
// A piece of n bytes takes O(n log n), so a long tool output stays cheap.
func (t *Tokenizer) appendPiece(ids []int32, piece string) []int32 {
	if len(piece) == 1 {
		return append(ids, t.byteIDs[piece[0]])
	}
	if len(piece) > maxCached {
		return t.mergePiece(ids, piece)
	}
	slot := t.cache.slot(piece)
	if e := slot.Load(); e != nil && e.piece == piece {
		return append(ids, e.ids...)
	}
	from := len(ids)
	ids = t.mergePiece(ids, piece)
	slot.Store(newEntry(piece, ids[from:]))
	return ids
}

func (t *Tokenizer) mergePiece(ids []int32, piece string) []int32 {
	if t.whole != nil {
		if id, ok := t.whole[piece]; ok {
			return append(ids, id)
		}
	}
	if len(piece) <= shortPiece {
		return t.mergeShort(ids, piece)
	}
	return t.mergeLong(ids, piece)
}

// mergeShort keeps the tokens and the ranks of all neighbours on the stack.
func (t *Tokenizer) mergeShort(ids []int32, piece string) []int32 {
	var toks, ranks [shortPiece]int32 // ranks[i] is the rank of tokens i and i+1
	n := len(piece)
	for i := range n {
		toks[i] = t.byteIDs[piece[i]]
	}
	for i := range n - 1 {
		ranks[i] = t.merges.rank(toks[i], toks[i+1])
	}
	for n > 1 {
		at := 0
		for i := 1; i < n-1; i++ {
			if ranks[i] < ranks[at] {
				at = i
			}
		}
		if ranks[at] == noMerge {
			break
		}
		toks[at] = t.merges.product(ranks[at])
		copy(toks[at+1:n-1], toks[at+2:n])
		copy(ranks[at:n-2], ranks[at+1:n-1])
		n--
		if at+1 < n {
			ranks[at] = t.merges.rank(toks[at], toks[at+1])
		}
		if at > 0 {
			ranks[at-1] = t.merges.rank(toks[at-1], toks[at])
		}
	}
	return append(ids, toks[:n]...)
}

// mergeLong keeps the tokens in a linked list over the bytes of the piece and
// the merges that may apply in a heap.
func (t *Tokenizer) mergeLong(ids []int32, piece string) []int32 {
	l := newList(t, piece)
	for i := range len(piece) - 1 {
		l.rate(i)
	}
	for len(l.heap) > 0 {
		rank, at := l.heap.pop()
		if l.nodes[at].rank != rank {
			continue // a token of the pair has changed since
		}
		l.join(at)
	}
	for i := 0; i < len(piece); i = l.nodes[i].next {
		ids = append(ids, l.nodes[i].id)
	}
	return ids
}

// node is a token of a long piece, at the place of its first byte.
type node struct {
	id, rank   int32 // rank is the rank of the token and the next one
	prev, next int
}

type list struct {
	tok   *Tokenizer
	nodes []node
	heap  candidates
}

func newList(t *Tokenizer, piece string) *list {
	l := &list{tok: t, nodes: make([]node, len(piece)), heap: make(candidates, 0, len(piece))}
	for i := range len(piece) {
		l.nodes[i] = node{t.byteIDs[piece[i]], noMerge, i - 1, i + 1}
	}
	return l
}

// rate sets the rank at i and queues its merge, if there is one.
func (l *list) rate(i int) {
	n := &l.nodes[i]
	n.rank = noMerge
	if n.next >= len(l.nodes) {
		return
	}
	n.rank = l.tok.merges.rank(n.id, l.nodes[n.next].id)
	if n.rank != noMerge {
		l.heap.push(n.rank, i)
	}
}

func (l *list) join(at int) {
	n := &l.nodes[at]
	gone := &l.nodes[n.next]
	n.id, n.next = l.tok.merges.product(n.rank), gone.next
	gone.rank = noMerge
	if n.next < len(l.nodes) {
		l.nodes[n.next].prev = at
	}
	if n.prev >= 0 {
		l.rate(n.prev)
	}
	l.rate(at)
}

// candidates is a heap of merges ordered by rank, then by place. An entry has the rank
// above placeBits and the place below.
type candidates []uint64

// placeBits is enough for any text in memory; ranks are below 1 << 24.
const placeBits = 40

func (c *candidates) push(rank int32, at int) {
	h := append(*c, uint64(rank)<<placeBits|uint64(at))
	*c = h
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if h[up] <= h[i] {
			return
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
}

func (c *candidates) pop() (rank int32, at int) {
	h := *c
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	*c = h
	for i := 0; ; {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1] < h[down] {
			down++
		}
		if h[i] <= h[down] {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	return int32(top >> placeBits), int(top & (1<<placeBits - 1))
}
