package chatclient

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes text safe for a terminal: control characters but line ends and tabs, marks
// that turn the direction of writing, and bytes that are no UTF-8 are written as escapes of
// Go's strings. Other characters stay.
func Escape(text string) string {
	if !strings.ContainsFunc(text, steers) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case !steers(r):
			b.WriteRune(r)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}

// steers reports whether a terminal does something else with r than show it.
func steers(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case unicode.IsControl(r), r == '\u2028', r == '\u2029':
		return true
	}
	return unicode.Is(unicode.Bidi_Control, r)
}
