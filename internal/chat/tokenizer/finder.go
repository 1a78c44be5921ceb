package tokenizer

// Finder looks for a text in the decoding of ids without decoding most of them: it skips a
// token that neither holds the text nor ends in its beginning. It is the automaton of
// Knuth, Morris and Pratt, "Fast pattern matching in strings" (1977), in which a token is
// one step while nothing of the text has been seen.
type Finder struct {
	content [][]byte
	// tokens hold the length of each token, twice, and 1 for those that matter.
	tokens []uint32
	// next is the state after a byte: how many bytes of the text have been seen, at
	// state * 256 + byte.
	next []uint16
	// found is the last state.
	found uint16
}

// maxFind is the longest text, whose automaton takes 2 MB.
const maxFind = 4096

// NewFinder makes a Finder for a text of 1 to 4,096 bytes; others give nil.
func (t *Tokenizer) NewFinder(text []byte) *Finder {
	if len(text) == 0 || len(text) > maxFind {
		return nil
	}
	f := &Finder{content: t.content, tokens: make([]uint32, len(t.content)), next: make([]uint16, len(text)*numBytes), found: uint16(len(text))} //nolint:gosec // at most 4,096
	// back is the state of the longest end of what was seen that begins the text, too.
	back := 0
	for state, wanted := range text {
		row := f.next[state*numBytes:][:numBytes]
		if state > 0 {
			copy(row, f.next[back*numBytes:][:numBytes])
			back = int(row[wanted])
		}
		row[wanted] = uint16(state + 1) //nolint:gosec // at most 4,096
	}
	for id, content := range t.content {
		f.tokens[id] = uint32(len(content)) << 1 //nolint:gosec // no token has a gigabyte
		if f.after(0, content) != 0 {
			f.tokens[id] |= 1
		}
	}
	return f
}

// after is the state behind more bytes; the last state stays.
func (f *Finder) after(state uint16, bytes []byte) uint16 {
	for _, b := range bytes {
		if state == f.found {
			break
		}
		state = f.next[int(state)*numBytes+int(b)]
	}
	return state
}

// Find reports whether the decoded ids hold the text, and, where they do not, how many
// bytes they decode to.
func (f *Finder) Find(ids []int32) (size int, found bool) {
	state := uint16(0)
	for _, id := range ids {
		if uint(id) >= uint(len(f.tokens)) { //nolint:gosec // a negative id becomes a large one
			continue
		}
		token := f.tokens[id]
		size += int(token >> 1)
		if token&1|uint32(state) == 0 {
			continue
		}
		if state = f.after(state, f.content[id]); state == f.found {
			return 0, true
		}
	}
	return size, false
}
