package tokenizer

// MergesForTest returns the merges in order of rank.
func MergesForTest(t *Tokenizer) [][2]string {
	var out [][2]string
	for _, p := range t.order {
		out = append(out, [2]string{t.Decode([]int32{p.left}), t.Decode([]int32{p.right})})
	}
	return out
}

// PiecesForTest returns the pieces of text, which merges do not cross.
func PiecesForTest(t *Tokenizer, text string) []string {
	var out []string
	for text != "" {
		n := t.split.next(text)
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}

// MergeForTest merges one piece both ways, without the cache.
func MergeForTest(t *Tokenizer, piece string) (short, long []int32) {
	return t.mergeShort(nil, piece), t.mergeLong(nil, piece)
}

// NormalizeForTest returns what brings text into the form that the reference
// library gives it.
func NormalizeForTest() func(string) string { return newComposer().normalize }

// ClassForTest returns the class of each rune, as a letter, and whether it
// belongs to a word.
func ClassForTest() func(r rune) (class, word byte) {
	c, m := newClasses(), newMatcher(nil)
	return func(r rune) (byte, byte) {
		word := byte('-')
		if m.isWord(r) {
			word = 'w'
		}
		return "-LNS"[c.get(r)], word
	}
}
