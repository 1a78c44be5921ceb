package tokenizer

import (
	"container/heap"
	"iter"
)

// pieces splits plain text as the pre-tokenizer does: each ASCII digit alone,
// everything between digits in one piece. Merges never cross a piece.
func pieces(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start := 0
		for i := range len(text) {
			if text[i] < '0' || text[i] > '9' {
				continue
			}
			if start < i && !yield(text[start:i]) {
				return
			}
			if !yield(text[i : i+1]) {
				return
			}
			start = i + 1
		}
		if start < len(text) {
			yield(text[start:])
		}
	}
}

func (t *Tokenizer) appendPlain(ids []int32, text string) []int32 {
	for p := range pieces(text) {
		ids = t.appendPiece(ids, p)
	}
	return ids
}

// appendPiece applies the merges to one piece in order of rank, leftmost first.
// It takes O(n log n) for n bytes, so a long tool output stays cheap.
func (t *Tokenizer) appendPiece(ids []int32, piece string) []int32 {
	n := len(piece)
	w := work{ids: make([]int32, n), prev: make([]int, n), next: make([]int, n)}
	for i := range n {
		w.ids[i], w.prev[i], w.next[i] = t.byteIDs[piece[i]], i-1, i+1
	}
	for i := range n - 1 {
		w.push(t, i)
	}
	for len(w.queue) > 0 {
		c := heap.Pop(&w.queue).(candidate)
		if w.stale(c) {
			continue
		}
		w.join(c)
		if w.prev[c.at] >= 0 {
			w.push(t, w.prev[c.at])
		}
		w.push(t, c.at)
	}
	for i := 0; i < n; i = w.next[i] {
		ids = append(ids, w.ids[i])
	}
	return ids
}

// gone marks a position that was merged into the one before it.
const gone = -1

// work is a piece during merging: a linked list of tokens over its bytes.
type work struct {
	ids        []int32
	prev, next []int
	queue      queue
}

// push queues the merge of the tokens at i and after it, if there is one.
func (w *work) push(t *Tokenizer, i int) {
	j := w.next[i]
	if j >= len(w.ids) {
		return
	}
	p := pair{w.ids[i], w.ids[j]}
	if m, ok := t.merges[p]; ok {
		heap.Push(&w.queue, candidate{merge: m, at: i, pair: p})
	}
}

// stale reports whether a token of the candidate has changed since it was queued.
func (w *work) stale(c candidate) bool {
	j := w.next[c.at]
	return w.ids[c.at] != c.left || j >= len(w.ids) || w.ids[j] != c.right
}

func (w *work) join(c candidate) {
	j := w.next[c.at]
	w.ids[c.at], w.ids[j] = c.id, gone
	w.next[c.at] = w.next[j]
	if w.next[j] < len(w.ids) {
		w.prev[w.next[j]] = c.at
	}
}

// candidate is a merge that may apply at a position.
type candidate struct {
	merge
	pair
	at int
}

// queue orders candidates by rank, then position.
type queue []candidate

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].rank != q[j].rank {
		return q[i].rank < q[j].rank
	}
	return q[i].at < q[j].at
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(candidate)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
