// Package clean owns what makes problems of public sets fit for training: which prompts
// are the same one, which share words with a benchmark, and which answers can be verified.
// It reads no files.
//
// Invariant: a rule drops a problem for something that it can show: the answer, the other
// prompt, or the words that both share.
package clean

import (
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

// Normalize returns a prompt as it is compared: composed by NFKC, in lower case, with
// one blank for any space, without dollar signs, \( \) \[ \], \left, \right and thin spaces
// of LaTeX, \dfrac and \tfrac as \frac, without a full stop at the end. Signs of arithmetic
// and punctuation within count: x-1 is not x+1.
func Normalize(prompt string) string { return string(appendNormal(nil, prompt)) }

// appendNormal writes the normal form of a prompt.
func appendNormal(out []byte, prompt string) []byte {
	if !ascii(prompt) {
		prompt = norm.NFKC.String(prompt)
	}
	start, blank := len(out), false
	for i := 0; i < len(prompt); {
		if skip, into := latexSpace(prompt[i:]); skip > 0 {
			i += skip
			out = append(out, into...)
			continue
		}
		c := prompt[i]
		switch {
		case c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\v' || c == '\f':
			blank = true
			i++
			continue
		case c == '$':
			i++
			continue
		}
		if blank && len(out) > start {
			out = append(out, ' ')
		}
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
	for len(out) > start && strings.IndexByte(" .?!:", out[len(out)-1]) >= 0 {
		out = out[:len(out)-1]
	}
	return out
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
	if !ascii(text) {
		text = norm.NFKC.String(text)
	}
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
