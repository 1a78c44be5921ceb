// Package tokenizer owns the map between bytes and token ids: byte-level BPE
// in the tokenizer.json format of Hugging Face, and a deterministic trainer for
// it. It knows nothing of chat templates; package chat does.
//
// Invariant: Decode(Encode(x)) == x for any bytes x, and Encode never yields a
// special token, so text of users and tools cannot forge a control token.
package tokenizer

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// numBytes is the size of the base alphabet: the ids 0..255 of a trained
// tokenizer are the bytes themselves.
const numBytes = 256

// pair is two adjacent tokens.
type pair struct{ left, right int32 }

// merge is what a pair becomes; a lower rank merges first.
type merge struct {
	rank int
	id   int32
}

// special is an added token that only EncodeSpecial recognises.
type special struct {
	id      int32
	content string
}

// Tokenizer is immutable and safe for concurrent use.
type Tokenizer struct {
	// bytes of each id; nil for ids that are not in use.
	content [][]byte
	byteIDs [numBytes]int32
	merges  map[pair]merge
	// order lists the pairs of merges by rank, for writing.
	order []pair
	// specials sorted by id.
	specials []special
}

// VocabSize is the largest id plus one.
func (t *Tokenizer) VocabSize() int { return len(t.content) }

// NumMerges is the number of learned merges.
func (t *Tokenizer) NumMerges() int { return len(t.order) }

// Special returns the id of the special token with the given content.
func (t *Tokenizer) Special(content string) (int32, bool) {
	for _, s := range t.specials {
		if s.content == content {
			return s.id, true
		}
	}
	return 0, false
}

// IsSpecial reports whether id is a special token.
func (t *Tokenizer) IsSpecial(id int32) bool {
	_, found := slices.BinarySearchFunc(t.specials, id, func(s special, id int32) int { return int(s.id) - int(id) })
	return found
}

// Encode returns the ids of text as plain data: the content of a special token
// in it becomes ordinary bytes. Use it for everything that users, tools or
// models wrote.
func (t *Tokenizer) Encode(text string) []int32 {
	return t.appendPlain(nil, text)
}

// EncodeSpecial returns the ids of trusted text, with special tokens recognised:
// the leftmost one first, of several at one place the longest.
func (t *Tokenizer) EncodeSpecial(text string) []int32 {
	var ids []int32
	for plain, id := range t.Segments(text) {
		ids = t.appendPlain(ids, plain)
		if id >= 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// Segments cuts trusted text at its special tokens: each plain text comes with
// the special token after it, the last one, if any, with -1.
func (t *Tokenizer) Segments(text string) iter.Seq2[string, int32] {
	return func(yield func(string, int32) bool) {
		for text := text; text != ""; {
			at, s := t.nextSpecial(text)
			if s == nil {
				yield(text, -1)
				return
			}
			if !yield(text[:at], s.id) {
				return
			}
			text = text[at+len(s.content):]
		}
	}
}

// nextSpecial finds the first special token in text; without one it returns
// len(text) and nil.
func (t *Tokenizer) nextSpecial(text string) (int, *special) {
	at, found := len(text), (*special)(nil)
	for i := range t.specials {
		s := &t.specials[i]
		j := strings.Index(text, s.content)
		if j < 0 || j > at || (j == at && found != nil && len(found.content) >= len(s.content)) {
			continue
		}
		at, found = j, s
	}
	return at, found
}

// Decode returns the bytes of ids; special tokens give their content and
// unknown ids nothing. The bytes need not be valid UTF-8; see Stream.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.Write(t.contentOf(id))
	}
	return b.String()
}

func (t *Tokenizer) contentOf(id int32) []byte {
	if id < 0 || int(id) >= len(t.content) {
		return nil
	}
	return t.content[id]
}

// Stream decodes token by token and holds back a UTF-8 sequence until it is
// complete, so that each piece can be shown as it comes.
type Stream struct {
	tok     *Tokenizer
	pending []byte
}

// NewStream returns an empty Stream.
func (t *Tokenizer) NewStream() *Stream { return &Stream{tok: t} }

// Push adds a token and returns the text that became complete.
func (s *Stream) Push(id int32) string {
	s.pending = append(s.pending, s.tok.contentOf(id)...)
	cut := len(s.pending) - incompleteTail(s.pending)
	text := string(s.pending[:cut])
	s.pending = append(s.pending[:0], s.pending[cut:]...)
	return text
}

// Flush returns what is held back, complete or not.
func (s *Stream) Flush() string {
	text := string(s.pending)
	s.pending = s.pending[:0]
	return text
}

// incompleteTail returns the number of last bytes that may become one rune.
func incompleteTail(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		c := b[len(b)-n]
		if utf8.RuneStart(c) {
			if utf8.FullRune(b[len(b)-n:]) {
				return 0
			}
			return n
		}
	}
	return 0
}

// base returns a tokenizer of bytes and specials, without merges.
func base(specials []string) (*Tokenizer, error) {
	t := &Tokenizer{merges: map[pair]merge{}}
	for i := range numBytes {
		t.content = append(t.content, []byte{byte(i)})
		t.byteIDs[i] = int32(i)
	}
	for i, s := range specials {
		if !validSpecial(s) || slices.Contains(specials[:i], s) {
			return nil, fmt.Errorf("special token %q is given twice or is not 2 or more visible ASCII characters", s)
		}
		id := int32(len(t.content))
		t.content = append(t.content, []byte(s))
		t.specials = append(t.specials, special{id, s})
	}
	return t, nil
}

// validSpecial keeps the spelling of specials apart from bytes and merges in a file.
func validSpecial(s string) bool {
	for _, c := range []byte(s) {
		if c < '!' || c > '~' {
			return false
		}
	}
	return len(s) >= 2
}

// addMerge gives the pair the next rank. It gets the next id, or the id of the
// token that other merges have spelled already: a file has one id per spelling.
func (t *Tokenizer) addMerge(p pair) int32 {
	content := slices.Concat(t.content[p.left], t.content[p.right])
	id := t.mergedID(content)
	if id < 0 {
		id = int32(len(t.content))
		t.content = append(t.content, content)
	}
	t.merges[p] = merge{rank: len(t.order), id: id}
	t.order = append(t.order, p)
	return id
}

// mergedID returns the id of an earlier merge with the same bytes, or -1.
func (t *Tokenizer) mergedID(content []byte) int32 {
	for _, p := range t.order {
		if id := t.merges[p].id; bytes.Equal(t.content[id], content) {
			return id
		}
	}
	return -1
}
