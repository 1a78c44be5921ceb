package tokenizer

import "unicode/utf8"

// Decoder turns ids into text one at a time. It holds back a UTF-8 sequence until it
// is complete, so that every piece is valid UTF-8 and can be shown at once. All
// pieces, with the result of Flush, are the Text of the ids.
type Decoder struct {
	tok *Tokenizer
	// pending is the beginning of a rune.
	pending []byte
}

// NewDecoder returns an empty Decoder.
func (t *Tokenizer) NewDecoder() *Decoder { return &Decoder{tok: t} }

// Push adds a token and returns the text that became complete. Bytes that
// cannot become UTF-8 are replaced with U+FFFD, one for each longest beginning
// of a sequence, as the reference library does.
func (d *Decoder) Push(id int32) string {
	d.pending = append(d.pending, d.tok.contentOf(id)...)
	text, rest := validPart(d.pending)
	d.pending = append(d.pending[:0], rest...)
	return text
}

// Flush ends the text. It returns a replacement for an incomplete sequence.
func (d *Decoder) Flush() string {
	if len(d.pending) == 0 {
		return ""
	}
	d.pending = d.pending[:0]
	return string(utf8.RuneError)
}

// Text returns ids as valid UTF-8 for people. Control tokens appear by their content.
func (t *Tokenizer) Text(ids []int32) string {
	text, rest := validPart([]byte(t.Decode(ids)))
	if len(rest) > 0 {
		text += string(utf8.RuneError)
	}
	return text
}

// validPart returns b with invalid UTF-8 replaced, and as rest the bytes at its end
// that may still become a rune.
func validPart(b []byte) (text string, rest []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	out := make([]byte, 0, len(b)+2*utf8.UTFMax)
	for len(b) > 0 {
		if !utf8.FullRune(b) {
			break
		}
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = badPrefix(b)
		}
		out = utf8.AppendRune(out, r)
		b = b[n:]
	}
	return string(out), b
}

// badPrefix returns how many bytes at the start of b form the longest beginning of a
// rune (the maximal subpart of Unicode, chapter 3.9). b does not begin with a rune.
func badPrefix(b []byte) int {
	n := 1
	if utf8.FullRune(b[:n]) {
		return n
	}
	for n < len(b) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}
