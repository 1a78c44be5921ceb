package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// quoted lexes a string literal with Python's escapes.
func (l *lexer) quoted(rest string) error {
	var b strings.Builder
	for i := 1; i < len(rest); {
		switch rest[i] {
		case rest[0]:
			l.emit(tokenString, b.String())
			l.pos += i + 1
			return nil
		case '\\':
			n, ok := unescape(&b, rest[i+1:])
			if !ok {
				return l.fail("string has a truncated or unknown escape")
			}
			i += 1 + n
		default:
			b.WriteByte(rest[i])
			i++
		}
	}
	return l.fail("string is not closed")
}

// unescape writes the characters of the escape after a backslash and returns the
// length of the escape.
func unescape(b *strings.Builder, s string) (int, bool) {
	if s == "" {
		return 0, false
	}
	if i := strings.IndexByte(`nrtabfv\'"`, s[0]); i >= 0 {
		b.WriteByte("\n\r\t\a\b\f\v\\'\""[i])
		return 1, true
	}
	switch c := s[0]; {
	case c == '\n':
		return 1, true
	case c == 'x':
		return codePoint(b, s, 2)
	case c == 'u':
		return codePoint(b, s, 4)
	case c == 'U':
		return codePoint(b, s, 8)
	case c == 'N':
		return 0, false // characters by name would need a table of all names
	case c >= '0' && c <= '7':
		n := 1
		for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		code, _ := strconv.ParseUint(s[:n], 8, 32) // the digits were checked one by one
		b.WriteRune(rune(code))
		return n, true
	default:
		_, n := utf8.DecodeRuneInString(s)
		b.WriteString(`\` + s[:n])
		return n, true
	}
}

func codePoint(b *strings.Builder, s string, n int) (int, bool) {
	if len(s) < n+1 {
		return 0, false
	}
	code, err := strconv.ParseUint(s[1:n+1], 16, 32)
	if err != nil || code > utf8.MaxRune || code >= 0xd800 && code < 0xe000 {
		return 0, false
	}
	b.WriteRune(rune(code))
	return n + 1, true
}
