package tokenizer

import (
	"cmp"
	"container/heap"
	"fmt"
	"iter"
	"slices"
)

// minPairCount is how often a pair must occur to be worth a merge.
const minPairCount = 2

// Train learns up to numMerges merges from the texts of corpus. It recognises the
// given special tokens and never merges them. It learns fewer merges when no pair
// occurs twice. The ids are the 256 bytes, the specials, then the merges. Equal
// multisets of texts give equal tokenizers: the most frequent pair is merged first,
// and among equals the one with the smallest ids. The cost of a merge grows with the
// pieces that have its pair, not with the corpus.
func Train(corpus iter.Seq[string], numMerges int, specials []string) (*Tokenizer, error) {
	if numMerges < 0 {
		return nil, fmt.Errorf("num_merges is %d, want at least 0", numMerges)
	}
	t, err := base(specials)
	if err != nil {
		return nil, err
	}
	l := newLearner(t, corpus)
	for t.NumMerges() < numMerges {
		p, ok := l.mostFrequent()
		if !ok {
			break
		}
		l.merge(p)
	}
	return t, nil
}

// base returns a tokenizer of bytes and specials, without merges.
func base(specials []string) (*Tokenizer, error) {
	t := &Tokenizer{merges: newMergeTable(0), cache: newCache(), regex: digitRegex, split: newSplitter(digitRegex)}
	for i := range numBytes {
		t.content = append(t.content, []byte{byte(i)})
		t.byteIDs[i] = int32(i)
	}
	for i, s := range specials {
		if !validSpecial(s) || slices.Contains(specials[:i], s) {
			return nil, fmt.Errorf("special token %q is given twice or is not 2 or more visible ASCII characters", s)
		}
		t.added = append(t.added, added{id: int32(len(t.content)), content: s, control: true, inVocab: true})
		t.content = append(t.content, []byte(s))
	}
	t.seal()
	return t, nil
}

// validSpecial refuses a special that could be spelled like a byte or a merge in the file.
func validSpecial(s string) bool {
	for _, c := range []byte(s) {
		if c < '!' || c > '~' {
			return false
		}
	}
	return len(s) >= 2
}

// learner keeps how often each pair occurs while merges are learned.
type learner struct {
	tok    *Tokenizer
	words  []word
	counts map[pair]int
	// where lists the words that a pair has been in.
	where map[pair][]int
	queue ranking
	// merged holds the id of each spelling that a merge made.
	merged map[string]int32
}

// word is a distinct piece of the corpus.
type word struct {
	text  string
	ids   []int32
	count int
}

func newLearner(t *Tokenizer, corpus iter.Seq[string]) *learner {
	l := &learner{tok: t, words: countPieces(t, corpus), counts: map[pair]int{}, where: map[pair][]int{}, merged: map[string]int32{}}
	for i, w := range l.words {
		for j := range len(w.ids) - 1 {
			l.count(pair{w.ids[j], w.ids[j+1]}, w.count, i)
		}
	}
	for p, n := range l.counts {
		l.queue = append(l.queue, ranked{p, n})
	}
	heap.Init(&l.queue)
	return l
}

// countPieces returns the pieces with two or more bytes in order of their text.
func countPieces(t *Tokenizer, corpus iter.Seq[string]) []word {
	counts := map[string]int{}
	for text := range corpus {
		for plain := range t.Segments(text) {
			for plain != "" {
				n := t.split.next(plain)
				counts[plain[:n]]++
				plain = plain[n:]
			}
		}
	}
	var words []word
	for text, n := range counts {
		if len(text) > 1 {
			w := word{text: text, count: n}
			for _, b := range []byte(text) {
				w.ids = append(w.ids, t.byteIDs[b])
			}
			words = append(words, w)
		}
	}
	slices.SortFunc(words, func(a, b word) int { return cmp.Compare(a.text, b.text) })
	return words
}

// count adds n to the count of a pair of word i.
func (l *learner) count(p pair, n, i int) {
	l.counts[p] += n
	if at := l.where[p]; n > 0 && (len(at) == 0 || at[len(at)-1] != i) {
		l.where[p] = append(at, i)
	}
}

// mostFrequent returns the pair to merge next. It drops outdated counts from the
// queue: the current count of the pair is in it too.
func (l *learner) mostFrequent() (pair, bool) {
	for len(l.queue) > 0 {
		r := heap.Pop(&l.queue).(ranked)
		if r.count == l.counts[r.pair] && r.count >= minPairCount {
			return r.pair, true
		}
	}
	return pair{}, false
}

// merge replaces p in the corpus. A pair may occur again after its merge, when another
// merge makes one of its tokens; it is then merged as before.
func (l *learner) merge(p pair) {
	id := l.add(p)
	at := l.where[p]
	delete(l.where, p)
	changed := map[pair]bool{}
	slices.Sort(at)
	for _, i := range slices.Compact(at) {
		l.replace(i, p, id, changed)
	}
	for q := range changed {
		if n := l.counts[q]; n > 0 {
			heap.Push(&l.queue, ranked{q, n})
		} else {
			delete(l.counts, q)
		}
	}
}

// replace merges each occurrence of p in word i from the left, in place, and updates
// the counts of the pairs that this removes and adds.
func (l *learner) replace(i int, p pair, id int32, changed map[pair]bool) {
	w := &l.words[i]
	update := func(p pair, n int) {
		l.count(p, n, i)
		changed[p] = true
	}
	out := w.ids[:0]
	for j := 0; j < len(w.ids); j++ {
		if j+1 == len(w.ids) || w.ids[j] != p.left || w.ids[j+1] != p.right {
			out = append(out, w.ids[j])
			continue
		}
		update(p, -w.count)
		if len(out) > 0 {
			before := out[len(out)-1]
			update(pair{before, p.left}, -w.count)
			update(pair{before, id}, w.count)
		}
		if j+2 < len(w.ids) {
			after := w.ids[j+2]
			update(pair{p.right, after}, -w.count)
			update(pair{id, after}, w.count)
		}
		out = append(out, id)
		j++
	}
	w.ids = out
}

// add gives the pair the next rank and the next id, or the id of a token with the same
// spelling that other merges have made: a file has one id per spelling.
func (l *learner) add(p pair) int32 {
	t := l.tok
	if rank := t.merges.rank(p.left, p.right); rank != noMerge {
		return t.merges.product(rank)
	}
	content := slices.Concat(t.content[p.left], t.content[p.right])
	id, known := l.merged[string(content)]
	if !known {
		id = int32(len(t.content))
		t.content = append(t.content, content)
		l.merged[string(content)] = id
	}
	t.merges.add(p, id)
	t.order = append(t.order, p)
	return id
}

// ranked is a pair with its count at some time.
type ranked struct {
	pair
	count int
}

// ranking is a heap of pairs, the most frequent first, then the smallest ids.
type ranking []ranked

func (r ranking) Len() int { return len(r) }
func (r ranking) Less(i, j int) bool {
	a, b := r[i], r[j]
	return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.left, b.left), cmp.Compare(a.right, b.right)) < 0
}
func (r ranking) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *ranking) Push(x any)   { *r = append(*r, x.(ranked)) }
func (r *ranking) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}
