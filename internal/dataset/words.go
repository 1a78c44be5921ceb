package dataset

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Key is a hash of a prompt; prompts with equal keys are the same problem.
type Key [16]byte

// KeyOf returns the key of a prompt with what else tells problems apart, such as the
// fixture. The prompt counts by Normalize.
func KeyOf(prompt string, further ...string) Key {
	buf := appendNormal(make([]byte, 0, 512), prompt)
	for _, f := range further {
		buf = append(append(buf, 0), f...)
	}
	sum := sha256.Sum256(buf)
	return Key(sum[:16])
}

// appendNormal appends a prompt as it is compared: composed, in lower case, with one blank for
// any space, without dollar signs, \( \) \[ \], \left, \right and thin spaces of LaTeX, \dfrac
// and \tfrac as \frac, without a full stop, question mark or colon at the end. Signs of
// arithmetic and punctuation within count: x-1 is not x+1, 5! is not 5, and 0.3... is not 0.3.
func appendNormal(out []byte, prompt string) []byte {
	prompt = composed(prompt)
	start, blank := len(out), false
	for i := 0; i < len(prompt); {
		if skip, into := latexSpace(prompt[i:]); skip > 0 {
			i += skip
			if into != "" {
				out = append(appendBlank(out, start, blank), into...)
				blank = false
			}
			continue
		}
		c := prompt[i]
		if strings.IndexByte("$ \n\t\r\v\f", c) >= 0 {
			blank = blank || c != '$'
			i++
			continue
		}
		out = appendBlank(out, start, blank)
		blank = false
		if c < utf8.RuneSelf {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			out = append(out, c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(prompt[i:])
		i += size
		if unicode.IsSpace(r) {
			blank = true
			continue
		}
		out = utf8.AppendRune(out, unicode.ToLower(r))
	}
	return out[:start+trimmedEnd(out[start:])]
}

// appendBlank writes a blank that is due, but none at the beginning of the text.
func appendBlank(out []byte, start int, due bool) []byte {
	if due && len(out) > start {
		return append(out, ' ')
	}
	return out
}

// trimmedEnd is the length of a text without the signs at its end that do not count.
func trimmedEnd(text []byte) int {
	n := len(text)
	for n > 0 && strings.IndexByte(" .?:", text[n-1]) >= 0 && !bytes.HasSuffix(text[:n], ellipsis) {
		n--
	}
	return n
}

// ellipsis is not trimmed: 0.33... and 0.33 are different numbers.
var ellipsis = []byte("...")

// composed returns a text in NFKC, without invisible characters, and with raised and
// lowered digits as in LaTeX: NFKC alone makes 102 of ten squared.
func composed(text string) string {
	if ascii(text) {
		return text
	}
	if strings.IndexFunc(text, special) < 0 {
		return norm.NFKC.String(text)
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == minus:
			b.WriteByte('-')
		case unicode.Is(unicode.Cf, r):
		case strings.ContainsRune(raised, r):
			size = writeShifted(&b, '^', text, raised)
		case strings.ContainsRune(lowered, r):
			size = writeShifted(&b, '_', text, lowered)
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return norm.NFKC.String(b.String())
}

const (
	minus   = '\u2212'
	raised  = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207a\u207b\u207f\u2071"
	lowered = "\u2080\u2081\u2082\u2083\u2084\u2085\u2086\u2087\u2088\u2089\u208a\u208b\u2099\u1d62"
	// inLine are the signs of raised and of lowered, in their order.
	inLine = "0123456789+-ni"
)

func special(r rune) bool {
	return r == minus || unicode.Is(unicode.Cf, r) || strings.ContainsRune(raised, r) || strings.ContainsRune(lowered, r)
}

// writeShifted writes the signs of a set at the beginning of text behind a mark, in braces
// where there are several, and returns their bytes.
func writeShifted(b *strings.Builder, mark byte, text, set string) (size int) {
	var signs []byte
	for i, r := range text {
		at := strings.IndexRune(set, r)
		if at < 0 {
			break
		}
		signs = append(signs, inLine[utf8.RuneCountInString(set[:at])])
		size = i + utf8.RuneLen(r)
	}
	b.WriteByte(mark)
	if len(signs) > 1 {
		signs = append(append([]byte{'{'}, signs...), '}')
	}
	b.Write(signs)
	return size
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// latexMarks are commands that change the look alone, with what they count as.
var latexMarks = []struct{ mark, into string }{
	{`\left`, ""}, {`\right`, ""}, {`\,`, ""}, {`\!`, ""}, {`\;`, ""}, {`\:`, ""}, {`\(`, ""}, {`\)`, ""}, {`\[`, ""}, {`\]`, ""},
	{`\dfrac`, `\frac`}, {`\tfrac`, `\frac`}, {`\displaystyle`, ""},
}

// latexSpace recognizes a mark at the beginning of s. A command of which it is the
// beginning, such as \leftarrow, is none.
func latexSpace(s string) (skip int, into string) {
	if s[0] != '\\' {
		return 0, ""
	}
	for _, m := range latexMarks {
		if !strings.HasPrefix(s, m.mark) {
			continue
		}
		last := m.mark[len(m.mark)-1]
		if n := len(m.mark); 'a' <= last && last <= 'z' && n < len(s) && letter(s[n]) {
			continue
		}
		return len(m.mark), m.into
	}
	return 0, ""
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// words calls yield with each word of a text in lower case: a run of letters and digits.
// Signs of scripts without spaces between words are words each.
func words(text string, yield func(word []byte)) {
	text = composed(text)
	var buf []byte
	flush := func() {
		if len(buf) > 0 {
			yield(buf)
			buf = buf[:0]
		}
	}
	for _, r := range text {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			buf = append(buf, byte(r))
		case 'A' <= r && r <= 'Z':
			buf = append(buf, byte(r)+'a'-'A')
		case r < utf8.RuneSelf:
			flush()
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai):
			flush()
			buf = utf8.AppendRune(buf, r)
			flush()
		case unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r):
			buf = utf8.AppendRune(buf, unicode.ToLower(r))
		default:
			flush()
		}
	}
	flush()
}
