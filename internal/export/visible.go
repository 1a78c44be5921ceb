package export

import (
	"fmt"
	"strings"
	"unicode"
)

// Visible makes a text of others harmless for a terminal: control characters, those that
// turn the direction of text or hide, and bytes that are no UTF-8 become escapes.
func Visible(text string) string {
	harmless := func(r rune) bool { return unicode.IsPrint(r) && r != unicode.ReplacementChar }
	if strings.IndexFunc(text, func(r rune) bool { return !harmless(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case harmless(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == unicode.ReplacementChar && !strings.HasPrefix(text[i:], string(unicode.ReplacementChar)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		case r > 0xff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\x%02x`, r)
		}
	}
	return b.String()
}
