package dataset

import (
	"errors"
	"strings"
)

// GramWords is the length of the sequences of words that count as an overlap.
const GramWords = 8

// Index finds prompts that share a sequence of GramWords words with a benchmark, or that
// are one of its problems. The zero value is not ready; see NewIndex.
type Index struct {
	n     int
	grams map[uint64]place
	whole map[Key]int32
	// vocabulary numbers the words of all benchmark problems, from 1; spelling is its
	// reverse. problems are their words by number.
	vocabulary map[string]uint32
	spelling   []string
	problems   [][]uint32
	names      []string
}

// place is where a sequence of words is: a problem, and its first word.
type place struct{ problem, word int32 }

// Overlap is a sequence of words that a prompt shares with a benchmark, or an equal prompt.
type Overlap struct {
	// Benchmark names the problem as Add did.
	Benchmark string `json:"benchmark"`
	// Words are the shared words; empty if the whole prompts are equal.
	Words string `json:"words,omitempty"`
}

// NewIndex makes an index of sequences of n words.
func NewIndex(n int) (*Index, error) {
	if n < 2 {
		return nil, errors.New("an overlap of fewer than 2 words says nothing")
	}
	return &Index{n: n, grams: map[uint64]place{}, whole: map[Key]int32{}, vocabulary: map[string]uint32{}}, nil
}

// Len is the number of benchmark problems.
func (x *Index) Len() int { return len(x.problems) }

// Add adds a problem of a benchmark under a name.
func (x *Index) Add(name, prompt string) {
	number := int32(len(x.problems))
	var ids []uint32
	words(prompt, func(w []byte) {
		id, ok := x.vocabulary[string(w)]
		if !ok {
			id = uint32(len(x.vocabulary)) + 1
			x.vocabulary[string(w)] = id
			x.spelling = append(x.spelling, string(w))
		}
		ids = append(ids, id)
	})
	x.problems, x.names = append(x.problems, ids), append(x.names, name)
	if key := KeyOf(prompt); len(ids) > 0 {
		if _, known := x.whole[key]; !known {
			x.whole[key] = number
		}
	}
	for i := 0; i+x.n <= len(ids); i++ {
		h := hashWords(ids[i : i+x.n])
		if _, known := x.grams[h]; !known {
			x.grams[h] = place{number, int32(i)}
		}
	}
}

// hashWords mixes the numbers of words (FNV-1a, over words for bytes).
func hashWords(ids []uint32) uint64 {
	h := uint64(14695981039346656037)
	for _, id := range ids {
		h ^= uint64(id)
		h *= 1099511628211
		h ^= h >> 29
	}
	return h
}

// Find returns the first overlap of a prompt.
func (x *Index) Find(prompt string) (Overlap, bool) {
	if at, ok := x.whole[KeyOf(prompt)]; ok {
		return Overlap{Benchmark: x.names[at]}, true
	}
	var window []uint32
	var found place
	hit := false
	words(prompt, func(w []byte) {
		if hit {
			return
		}
		id := x.vocabulary[string(w)]
		if id == 0 {
			window = window[:0] // a word that no benchmark has
			return
		}
		window = append(window, id)
		if len(window) < x.n {
			return
		}
		last := window[len(window)-x.n:]
		at, ok := x.grams[hashWords(last)]
		if ok && equalWords(x.problems[at.problem][at.word:int(at.word)+x.n], last) {
			found, hit = at, true
		}
	})
	if !hit {
		return Overlap{}, false
	}
	return Overlap{Benchmark: x.names[found.problem], Words: x.text(found)}, true
}

func equalWords(a, b []uint32) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// text spells the words of a sequence.
func (x *Index) text(at place) string {
	ids := x.problems[at.problem][at.word : int(at.word)+x.n]
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = x.spelling[id-1]
	}
	return strings.Join(out, " ")
}
