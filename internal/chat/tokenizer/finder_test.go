package tokenizer_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestFinderFindsWhatDecodingFinds: random ids, also such that no text has, and texts cut out
// of what they decode to, with one byte changed in half of the cases.
func TestFinderFindsWhatDecodingFinds(t *testing.T) {
	tok := trained(t, 200)
	r := rand.New(rand.NewPCG(1, 2))
	found, not := 0, 0
	for range 4000 {
		ids := make([]int32, r.IntN(60))
		for i := range ids {
			ids[i] = r.Int32N(int32(tok.VocabSize())+2) - 1 //nolint:gosec // small
		}
		if r.IntN(3) == 0 { // repeats, which a text may begin anew within
			for i := range ids {
				ids[i] = ids[i%(1+r.IntN(2))]
			}
		}
		text := []byte(tok.Decode(ids))
		if len(text) == 0 {
			continue
		}
		from := r.IntN(len(text))
		wanted := bytes.Clone(text[from : from+1+r.IntN(min(40, len(text)-from))])
		if r.IntN(2) == 0 {
			wanted[r.IntN(len(wanted))] = byte(r.IntN(256))
		}
		size, ok := tok.NewFinder(wanted).Find(ids)
		if want := bytes.Contains(text, wanted); ok != want || !ok && size != len(text) {
			t.Fatalf("%q in %q: %v (%d bytes), want %v (%d)", wanted, text, ok, size, want, len(text))
		}
		if ok {
			found++
		} else {
			not++
		}
	}
	if found < 1000 || not < 1000 {
		t.Errorf("%d were found, %d not: the cases say little", found, not)
	}
	if tok.NewFinder(nil) != nil || tok.NewFinder([]byte(strings.Repeat("a", 5000))) != nil {
		t.Error("a text without an automaton has one")
	}
	long := strings.Repeat("ab", 2048)
	if _, ok := tok.NewFinder([]byte(long)).Find(tok.Encode("a" + long + "b")); !ok {
		t.Error("the longest text is not found")
	}
}
