package jail

import (
	"encoding/base64"
	"strings"

	"temper/sandbox"
)

// usesAny reports whether the text of req seems to import one of modules or to use an
// attribute of it. A wrong guess only costs time (an import in the child, or a slower
// fork), because every zygote can run every program.
func usesAny(req sandbox.Request, modules []string) bool {
	texts := append([]string{req.Code, req.Fixture}, req.History...)
	for _, text := range texts {
		if mentions(text, modules) || mentions(hidden(text), modules) {
			return true
		}
	}
	return false
}

func mentions(text string, modules []string) bool {
	if text == "" {
		return false
	}
	for _, name := range modules {
		name, _, _ = strings.Cut(name, ".")
		if uses(text, name) {
			return true
		}
	}
	return false
}

// shortestHidden is the length of the shortest literal that hidden decodes: the length of
// "import numpy" in base64.
const shortestHidden = 16

// hidden returns the decoded base64 literals of a text. Clients wrap programs in base64 so
// that no quote of the program ends the literal.
func hidden(text string) string {
	var out strings.Builder
	for {
		start := strings.IndexAny(text, "\"'")
		if start < 0 {
			return out.String()
		}
		text = text[start+1:]
		end := 0
		for end < len(text) && base64Digit(text[end]) {
			end++
		}
		digits := text[:end]
		text = text[end:]
		padding := strings.TrimLeft(text, "=")
		if len(digits) < shortestHidden || padding == "" || padding[0] != '"' && padding[0] != '\'' {
			continue
		}
		if data, err := base64.RawStdEncoding.DecodeString(digits); err == nil {
			out.Write(data)
			out.WriteByte('\n')
		}
	}
}

func base64Digit(c byte) bool {
	return c == '+' || c == '/' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

const lookBack = 256

// uses checks each place where module stands in text as a whole word. The module is used if
// an attribute follows, or if the line before it is an import and not a comment.
func uses(text, module string) bool {
	for at := 0; ; at += len(module) {
		i := strings.Index(text[at:], module)
		if i < 0 {
			return false
		}
		at += i
		// Only that much of the line is read: one line of a megabyte
		// must not cost a scan for each word.
		before, after := text[max(0, at-lookBack):at], text[at+len(module):]
		if before != "" && (word(before[len(before)-1]) || before[len(before)-1] == '.') || after != "" && word(after[0]) {
			continue
		}
		line := before[strings.LastIndexByte(before, '\n')+1:]
		if strings.Contains(line, "#") {
			continue
		}
		attribute := len(after) > 1 && after[0] == '.' && word(after[1])
		if attribute || strings.Contains(line, "import") || strings.HasSuffix(strings.TrimRight(line, " \t"), "from") {
			return true
		}
	}
}

// word reports whether c can be part of a name. Bytes beyond ASCII count as part of one.
func word(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
