package tokenizer

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// composer brings text into normalization form C as the reference library does
// (Unicode Standard Annex 15). It differs from norm.NFC in two ways: runes that
// the library's older tables lack stay as they are, and runs of more than 30
// combining marks are not broken with U+034F. Bytes that are not UTF-8 stay.
type composer struct {
	unknown *unicode.RangeTable
}

func newComposer() *composer { return &composer{unknown: sinceUnicode10()} }

// normalize returns s in form C, and s itself when it already is: a text that norm.NFC
// considers normal is also normal for a library that knows fewer runes.
func (c *composer) normalize(s string) string {
	if norm.NFC.IsNormalString(s) {
		return s
	}
	out := make([]byte, 0, len(s))
	var seg segment
	for s != "" {
		n := segmentLen(s)
		if n > 1 {
			seg.decompose(c, s[:n])
			seg.compose(c)
			for _, m := range seg.marks {
				out = utf8.AppendRune(out, m.r)
			}
		} else {
			out = append(out, s[0])
		}
		s = s[n:]
	}
	return string(out)
}

// segmentLen returns the length of the first part of s that can be normalized alone.
// It ends before ASCII and at bytes that are not UTF-8: nothing composes across these.
func segmentLen(s string) int {
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		return 1
	}
	for n < len(s) && s[n] >= utf8.RuneSelf {
		r, w := utf8.DecodeRuneInString(s[n:])
		if r == utf8.RuneError && w == 1 {
			break
		}
		n += w
	}
	return n
}

// mark is a rune with its canonical combining class, 0 for a starter.
type mark struct {
	r   rune
	ccc uint8
}

// segment is text that is being brought into form C. Its memory is reused.
type segment struct {
	marks       []mark
	buf, joined []byte
}

// decompose sets the segment to the canonically ordered full decomposition of s.
func (g *segment) decompose(c *composer, s string) {
	g.marks = g.marks[:0]
	for i, r := range s {
		if unicode.Is(c.unknown, r) {
			g.marks = append(g.marks, mark{r, 0})
			continue
		}
		if isHangul(r) {
			g.buf = norm.NFD.AppendString(g.buf[:0], string(r))
			g.appendRunes(g.buf)
			continue
		}
		p := norm.NFD.PropertiesString(s[i:])
		if d := p.Decomposition(); d != nil {
			g.appendRunes(d)
			continue
		}
		g.marks = append(g.marks, mark{r, p.CCC()})
	}
	for i := 0; i < len(g.marks); i++ {
		from := i
		for i < len(g.marks) && g.marks[i].ccc != 0 {
			i++
		}
		slices.SortStableFunc(g.marks[from:i], func(a, b mark) int { return int(a.ccc) - int(b.ccc) })
	}
}

// isHangul reports whether r is a syllable, which decomposes by arithmetic.
func isHangul(r rune) bool { return r >= 0xac00 && r <= 0xd7a3 }

func (g *segment) appendRunes(decomposed []byte) {
	for len(decomposed) > 0 {
		r, n := utf8.DecodeRune(decomposed)
		g.marks = append(g.marks, mark{r, norm.NFD.Properties(decomposed).CCC()})
		decomposed = decomposed[n:]
	}
}

// compose joins each rune with the starter before it unless a rune between them
// blocks it: one of the same or a higher class.
func (g *segment) compose(c *composer) {
	out := g.marks[:0]
	starter, last := -1, -1 // last is the class of the rune before, -1 after a starter
	for _, m := range g.marks {
		if starter >= 0 && last < int(m.ccc) {
			if r, ok := g.pair(c, out[starter].r, m.r); ok {
				out[starter].r = r
				continue
			}
		}
		last = int(m.ccc)
		if m.ccc == 0 {
			starter, last = len(out), -1
		}
		out = append(out, m)
	}
	g.marks = out
}

// pair returns the primary composite of a and b.
func (g *segment) pair(c *composer, a, b rune) (rune, bool) {
	if a < utf8.RuneSelf && b < utf8.RuneSelf {
		return 0, false
	}
	g.buf = utf8.AppendRune(utf8.AppendRune(g.buf[:0], a), b)
	if norm.NFC.Properties(g.buf[utf8.RuneLen(a):]).BoundaryBefore() {
		return 0, false
	}
	g.joined = norm.NFC.Append(g.joined[:0], g.buf...)
	r, width := utf8.DecodeRune(g.joined)
	return r, width == len(g.joined) && !unicode.Is(c.unknown, r)
}
