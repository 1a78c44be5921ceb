package tokenizer

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
)

// minPairCount is how often a pair must occur to be worth a merge.
const minPairCount = 2

// Train learns up to numMerges merges from the texts of corpus, in which the
// given special tokens are recognised and never merged. It learns fewer when no
// pair occurs twice. The ids are the 256 bytes, the specials, the merges. Equal
// multisets of texts give equal tokenizers: the most frequent pair is merged
// first, among equals the one with the smallest ids.
func Train(corpus iter.Seq[string], numMerges int, specials []string) (*Tokenizer, error) {
	if numMerges < 0 {
		return nil, fmt.Errorf("num_merges is %d, want at least 0", numMerges)
	}
	t, err := base(specials)
	if err != nil {
		return nil, err
	}
	words := t.countPieces(corpus)
	for range numMerges {
		p, ok := mostFrequent(words)
		if !ok {
			break
		}
		id := t.addMerge(p)
		for i := range words {
			words[i].ids = replace(words[i].ids, p, id)
		}
	}
	return t, nil
}

// word is a distinct piece of the corpus.
type word struct {
	text  string
	ids   []int32
	count int
}

func (t *Tokenizer) countPieces(corpus iter.Seq[string]) []word {
	counts := map[string]int{}
	for text := range corpus {
		for plain := range t.Segments(text) {
			for p := range pieces(plain) {
				counts[p]++
			}
		}
	}
	var words []word
	for text, n := range counts {
		if len(text) > 1 {
			words = append(words, word{text: text, ids: t.appendPiece(nil, text), count: n})
		}
	}
	slices.SortFunc(words, func(a, b word) int { return cmp.Compare(a.text, b.text) })
	return words
}

func mostFrequent(words []word) (pair, bool) {
	counts := map[pair]int{}
	for _, w := range words {
		for i := range len(w.ids) - 1 {
			counts[pair{w.ids[i], w.ids[i+1]}] += w.count
		}
	}
	best, bestCount := pair{}, 0
	for p, n := range counts {
		if n > bestCount || (n == bestCount && less(p, best)) {
			best, bestCount = p, n
		}
	}
	return best, bestCount >= minPairCount
}

func less(a, b pair) bool {
	return a.left < b.left || (a.left == b.left && a.right < b.right)
}

// replace merges each occurrence of p in ids, from the left, in place.
func replace(ids []int32, p pair, id int32) []int32 {
	out := ids[:0]
	for i := 0; i < len(ids); i++ {
		if i+1 < len(ids) && ids[i] == p.left && ids[i+1] == p.right {
			out = append(out, id)
			i++
			continue
		}
		out = append(out, ids[i])
	}
	return out
}
