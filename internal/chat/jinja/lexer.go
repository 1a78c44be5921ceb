package jinja

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	tokenEOF tokenKind = iota
	tokenData
	tokenBlockBegin
	tokenBlockEnd
	tokenVariableBegin
	tokenVariableEnd
	tokenName
	tokenString
	tokenInteger
	tokenFloat
	tokenOperator
)

type token struct {
	kind tokenKind
	text string // of a string, the content without escapes
	line int
}

// String describes a token for an error.
func (t token) String() string {
	switch t.kind {
	case tokenEOF:
		return "end of template"
	case tokenBlockEnd:
		return "end of statement"
	case tokenVariableEnd:
		return "end of print"
	case tokenData:
		return "text"
	default:
		return fmt.Sprintf("%q", t.text)
	}
}

// lexer cuts a template as Jinja2 does with trim_blocks and lstrip_blocks.
type lexer struct {
	src    string
	pos    int
	tokens []token
	// fresh means that the last tag took the newline after it, so that the next text
	// starts a line.
	fresh   bool
	lastPos int // the position whose line number is in line
	line    int
}

func lex(source string) ([]token, error) {
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{src: strings.TrimSuffix(source, "\n"), fresh: true, line: 1}
	for l.pos < len(l.src) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.emit(tokenEOF, "")
	return l.tokens, nil
}

func (l *lexer) emit(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.lineAt()})
}

func (l *lexer) lineAt() int {
	l.line += strings.Count(l.src[l.lastPos:l.pos], "\n")
	l.lastPos = l.pos
	return l.line
}

func (l *lexer) fail(format string, args ...any) error {
	return fmt.Errorf("line %d: %s", l.lineAt(), fmt.Sprintf(format, args...))
}

// next lexes the text up to the next tag, and the tag.
func (l *lexer) next() error {
	rest := l.src[l.pos:]
	at := opener(rest)
	if at < 0 {
		l.emit(tokenData, rest)
		l.pos = len(l.src)
		return nil
	}
	mark := rest[at+1]
	sign := byte(0)
	if len(rest) > at+2 && (rest[at+2] == '-' || rest[at+2] == '+') {
		sign = rest[at+2]
	}
	if text := l.stripped(rest[:at], mark, sign); text != "" {
		l.emit(tokenData, text)
	}
	l.pos += at + 2
	if sign != 0 {
		l.pos++
	}
	switch mark {
	case '#':
		return l.comment()
	case '{':
		l.emit(tokenVariableBegin, "")
		return l.inside(tokenVariableEnd, "}}")
	}
	if n := l.rawTag("raw"); n > 0 {
		return l.raw(n)
	}
	l.emit(tokenBlockBegin, "")
	return l.inside(tokenBlockEnd, "%}")
}

// opener returns the position of the next tag, -1 when there is none.
func opener(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '%' || s[i+1] == '{' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// stripped returns the text before a tag without the white space that the sign of the
// tag removes, or without that of its line, as lstrip_blocks demands.
func (l *lexer) stripped(text string, mark, sign byte) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign == '+' || mark == '{':
		return text
	}
	start := strings.LastIndexByte(text, '\n') + 1
	if (start > 0 || l.fresh) && strings.TrimFunc(text[start:], isSpace) == "" {
		return text[:start]
	}
	return text
}

func (l *lexer) comment() error {
	n := strings.Index(l.src[l.pos:], "#}")
	if n < 0 {
		return l.fail("comment is not closed")
	}
	sign := byte(0)
	if n > 0 {
		sign = l.src[l.pos+n-1]
	}
	l.pos += n + 2
	l.afterTag(sign, true)
	return nil
}

// afterTag skips the white space that the end of a tag removes. Only statements and
// comments remove a newline.
func (l *lexer) afterTag(sign byte, trim bool) {
	l.fresh = false
	rest := l.src[l.pos:]
	switch {
	case sign == '-':
		trimmed := strings.TrimLeftFunc(rest, isSpace)
		l.fresh = strings.HasSuffix(rest[:len(rest)-len(trimmed)], "\n")
		l.pos = len(l.src) - len(trimmed)
	case sign != '+' && trim && strings.HasPrefix(rest, "\n"):
		l.pos++
		l.fresh = true
	}
}

// rawTag returns the length of `raw %}` or `endraw %}` at pos, 0 when there is none.
func (l *lexer) rawTag(name string) int {
	rest := strings.TrimLeftFunc(l.src[l.pos:], isSpace)
	if !strings.HasPrefix(rest, name) {
		return 0
	}
	rest = strings.TrimLeftFunc(rest[len(name):], isSpace)
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "-"), "+")
	if !strings.HasPrefix(rest, "%}") {
		return 0
	}
	return len(l.src) - l.pos - len(rest) + 2
}

// raw emits the text up to the endraw tag.
func (l *lexer) raw(n int) error {
	sign := l.src[l.pos+n-3]
	l.pos += n
	l.afterTag(sign, false)
	start := l.pos
	for {
		n := strings.Index(l.src[l.pos:], "{%")
		if n < 0 {
			return l.fail("raw is not closed")
		}
		end := l.pos + n
		l.pos = end + 2
		sign := byte(0)
		if l.pos < len(l.src) && (l.src[l.pos] == '-' || l.src[l.pos] == '+') {
			sign = l.src[l.pos]
			l.pos++
		}
		tag := l.rawTag("endraw")
		if tag == 0 {
			continue
		}
		if text := l.stripped(l.src[start:end], '%', sign); text != "" {
			l.emit(tokenData, text)
		}
		sign = l.src[l.pos+tag-3]
		l.pos += tag
		l.afterTag(sign, true)
		return nil
	}
}

// inside lexes the tokens of a statement or print up to its end.
func (l *lexer) inside(end tokenKind, closer string) error {
	var open []byte
	for {
		l.pos = len(l.src) - len(strings.TrimLeftFunc(l.src[l.pos:], isSpace))
		rest := l.src[l.pos:]
		if rest == "" {
			return l.fail("tag is not closed")
		}
		if len(open) == 0 {
			if sign, ok := atEnd(rest, closer); ok {
				l.emit(end, "")
				l.pos += len(closer)
				if sign != 0 {
					l.pos++
				}
				l.afterTag(sign, end == tokenBlockEnd)
				return nil
			}
		}
		if err := l.token(rest, &open); err != nil {
			return err
		}
	}
}

func atEnd(rest, closer string) (sign byte, ok bool) {
	if strings.HasPrefix(rest, closer) {
		return 0, true
	}
	if rest[0] == '-' || (rest[0] == '+' && closer == "%}") {
		return rest[0], strings.HasPrefix(rest[1:], closer)
	}
	return 0, false
}

func (l *lexer) token(rest string, open *[]byte) error {
	switch c, _ := utf8.DecodeRuneInString(rest); {
	case c == '"' || c == '\'':
		return l.quoted(rest)
	case c >= '0' && c <= '9':
		kind, n := number(rest)
		l.emit(kind, strings.ReplaceAll(rest[:n], "_", ""))
		l.pos += n
		return nil
	case c == '_' || unicode.IsLetter(c):
		n := strings.IndexFunc(rest, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if n < 0 {
			n = len(rest)
		}
		l.emit(tokenName, rest[:n])
		l.pos += n
		return nil
	}
	op := operator(rest)
	if op == "" {
		return l.fail("unexpected character %q", firstRune(rest))
	}
	switch op {
	case "(", "[", "{":
		*open = append(*open, ")]}"[strings.Index("([{", op)])
	case ")", "]", "}":
		if n := len(*open); n == 0 || (*open)[n-1] != op[0] {
			return l.fail("unexpected %q", op)
		}
		*open = (*open)[:len(*open)-1]
	}
	l.emit(tokenOperator, op)
	l.pos += len(op)
	return nil
}

func firstRune(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return s[:n]
}

func operator(s string) string {
	for _, op := range []string{"//", "**", "==", "!=", ">=", "<="} {
		if strings.HasPrefix(s, op) {
			return op
		}
	}
	if strings.IndexByte("+-/*%~[](){}><=.:|,;", s[0]) >= 0 {
		return s[:1]
	}
	return ""
}

// number returns the kind and length of the literal at the start of s.
func number(s string) (tokenKind, int) {
	n := digits(s)
	kind := tokenInteger
	if n < len(s) && s[n] == '.' && digits(s[n+1:]) > 0 {
		kind, n = tokenFloat, n+1+digits(s[n+1:])
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		m := n + 1
		if m < len(s) && (s[m] == '+' || s[m] == '-') {
			m++
		}
		if d := digits(s[m:]); d > 0 {
			kind, n = tokenFloat, m+d
		}
	}
	return kind, n
}

func digits(s string) int {
	n := 0
	for n < len(s) && (s[n] >= '0' && s[n] <= '9' || s[n] == '_' && n > 0) {
		n++
	}
	return n
}
