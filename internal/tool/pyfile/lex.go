package pyfile

import "strings"

// kind is the kind of a token.
type kind int

const (
	word    kind = iota // a name, a keyword or a number
	text                // a string literal with prefix and quotes
	sign                // any other character
	newline             // the end of a logical line
)

// token is a piece of source. Comments and space are none.
type token struct {
	kind kind
	text string
	line int
	// first means that the token begins a logical line, in the column col from 0.
	first bool
	col   int
}

// lexer cuts source into tokens. It knows as much of Python as it takes to tell
// strings, comments and brackets from the rest.
type lexer struct {
	src    string
	at     int
	line   int
	start  int // of the physical line
	depth  int // of open brackets
	fresh  bool
	tokens []token
}

// lex returns the tokens of src, and an error with a line where a string is not closed.
func lex(src string) ([]token, *Problem) {
	l := &lexer{src: src, line: 1, fresh: true}
	for l.at < len(l.src) {
		if p := l.step(); p != nil {
			return l.tokens, p
		}
	}
	l.endLine()
	return l.tokens, nil
}

// step reads what stands at the place.
func (l *lexer) step() *Problem {
	c := l.src[l.at]
	switch {
	case c == '\n':
		if l.depth == 0 {
			l.endLine()
		}
		l.at++
		l.line++
		l.start = l.at
	case c == '\\' && strings.HasPrefix(l.src[l.at+1:], "\n"):
		l.at += 2
		l.line++
		l.start = l.at
	case c == ' ' || c == '\t' || c == '\r' || c == '\f':
		l.at++
	case c == '#':
		l.at += lineLength(l.src[l.at:])
	case l.stringAhead() > 0:
		return l.readString()
	case isWord(c):
		end := l.at
		for end < len(l.src) && isWord(l.src[end]) {
			end++
		}
		l.add(word, end)
	default:
		switch c {
		case '(', '[', '{':
			l.depth++
		case ')', ']', '}':
			l.depth = max(0, l.depth-1)
		}
		l.add(sign, l.at+1)
	}
	return nil
}

func (l *lexer) endLine() {
	if !l.fresh {
		l.tokens = append(l.tokens, token{kind: newline, line: l.line})
	}
	l.fresh = true
}

// add makes a token of the source up to end.
func (l *lexer) add(k kind, end int) {
	l.tokens = append(l.tokens, token{kind: k, text: l.src[l.at:end], line: l.line, first: l.fresh, col: l.at - l.start})
	l.fresh = false
	l.at = end
}

// stringAhead is the length of the prefix and the opening quotes of a string; 0 where
// there is none.
func (l *lexer) stringAhead() int { return openingAt(l.src[l.at:]) }

func openingAt(src string) int {
	n := 0
	for n < len(src) && n < 2 && strings.IndexByte("rRbBuUfFtT", src[n]) >= 0 {
		n++
	}
	if n == len(src) || src[n] != '"' && src[n] != '\'' {
		return 0
	}
	if triple := strings.Repeat(src[n:n+1], 3); strings.HasPrefix(src[n:], triple) {
		return n + 3
	}
	return n + 1
}

func (l *lexer) readString() *Problem {
	line := l.line
	end := stringEnd(l.src[l.at:])
	if end < 0 {
		l.at = len(l.src)
		return &Problem{Line: line, Msg: "has a string that is not closed"}
	}
	body := l.src[l.at : l.at+end]
	l.add(text, l.at+end)
	if n := strings.Count(body, "\n"); n > 0 {
		l.line += n
		l.start = l.at - (len(body) - strings.LastIndexByte(body, '\n') - 1)
	}
	return nil
}

// stringEnd is the length of the string that src begins with, -1 where it has no end.
func stringEnd(src string) int {
	open := openingAt(src)
	quote := src[open-1 : open]
	prefix := strings.ToLower(src[:strings.IndexAny(src, `"'`)])
	if open-len(prefix) == 3 {
		quote = strings.Repeat(quote, 3)
	}
	formatted := strings.ContainsAny(prefix, "ft")
	depth := 0 // of braces in a formatted string
	for i := open; i < len(src); {
		switch {
		case src[i] == '\\' && depth == 0:
			i += 2
		case depth == 0 && strings.HasPrefix(src[i:], quote):
			return i + len(quote)
		case src[i] == '\n' && len(quote) == 1 && depth == 0:
			return -1
		case formatted && depth == 0 && (strings.HasPrefix(src[i:], "{{") || strings.HasPrefix(src[i:], "}}")):
			i += 2
		case formatted && src[i] == '{':
			depth++
			i++
		case formatted && depth > 0 && src[i] == '}':
			depth--
			i++
		case depth > 0 && openingAt(src[i:]) > 0:
			n := stringEnd(src[i:])
			if n < 0 {
				return -1
			}
			i += n
		default:
			i++
		}
	}
	return -1
}

func lineLength(src string) int {
	if n := strings.IndexByte(src, '\n'); n >= 0 {
		return n
	}
	return len(src)
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
