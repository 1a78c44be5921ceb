package layout

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"temper/internal/chat"
	"temper/internal/chat/jinja"
)

func itoa(n int) string { return strconv.Itoa(n) }

// callStart matches the beginning of [name(.
var callStart = regexp.MustCompile(`^\s*\[\s*[A-Za-z_][^()\[\]\n]{0,200}\(`)

func looksLikeCalls(text string) bool {
	return callStart.MatchString(text) && strings.HasSuffix(strings.TrimSpace(text), "]")
}

// pythonCalls reads calls in the form [name(a=1, b="x"), other(c=[1, 2])]. Names may hold
// spaces, dots and slashes; values are literals of Python or JSON.
func pythonCalls(text string) ([]chat.ToolCall, *Reject) {
	p := &literal{text: strings.TrimSpace(text)}
	p.at = 1 // the bracket
	var out []chat.ToolCall
	for {
		p.skip()
		open := strings.IndexByte(p.text[p.at:], '(')
		if open < 1 {
			return nil, reject(BadCall, "no call at byte %d of %.60q", p.at, text)
		}
		name := strings.TrimSpace(p.text[p.at : p.at+open])
		p.at += open + 1
		arguments, ok := p.arguments()
		if !ok {
			return nil, reject(BadCall, "arguments of %.60s cannot be read at byte %d", name, p.at)
		}
		call, bad := newCall(name, arguments)
		if bad != nil {
			return nil, bad
		}
		out = append(out, call)
		p.skip()
		switch {
		case p.take(','):
		case p.take(']') && p.atEnd():
			return out, nil
		default:
			return nil, reject(BadCall, "want a comma or ] at byte %d", p.at)
		}
	}
}

// literal reads literals of Python and of JSON.
type literal struct {
	text string
	at   int
}

// maxLiteralDepth bounds lists within each other.
const maxLiteralDepth = 64

// skip passes space; it reports whether anything is left.
func (p *literal) skip() bool {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
	return p.at < len(p.text)
}

func (p *literal) atEnd() bool { return !p.skip() }

func (p *literal) take(c byte) bool {
	if p.skip() && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

// arguments reads name=value pairs up to the closing parenthesis.
func (p *literal) arguments() (*jinja.Dict, bool) {
	out := jinja.NewDict()
	if p.take(')') {
		return out, true
	}
	for {
		p.skip()
		equals := strings.IndexByte(p.text[p.at:], '=')
		if equals < 1 {
			return nil, false
		}
		name := strings.Trim(strings.TrimSpace(p.text[p.at:p.at+equals]), `"'`)
		if name == "" || strings.ContainsAny(name, "(){}[],") {
			return nil, false
		}
		p.at += equals + 1
		v, ok := p.value(0)
		if !ok {
			return nil, false
		}
		out.Set(name, v)
		if p.take(')') {
			return out, true
		}
		if !p.take(',') {
			return nil, false
		}
		if p.take(')') {
			return out, true
		}
	}
}

func (p *literal) value(depth int) (jinja.Value, bool) {
	if !p.skip() || depth > maxLiteralDepth {
		return nil, false
	}
	switch c := p.text[p.at]; c {
	case '"', '\'':
		return p.quoted(c)
	case '[':
		return p.list(depth, ']')
	case '(':
		return p.list(depth, ')')
	case '{':
		return p.dict(depth)
	default:
		return p.word()
	}
}

func (p *literal) list(depth int, end byte) (jinja.Value, bool) {
	p.at++
	out := &jinja.List{}
	for !p.take(end) {
		if len(out.Items) > 0 && !p.take(',') {
			return nil, false
		}
		if p.take(end) {
			break
		}
		v, ok := p.value(depth + 1)
		if !ok {
			return nil, false
		}
		out.Items = append(out.Items, v)
	}
	return out, true
}

func (p *literal) dict(depth int) (jinja.Value, bool) {
	p.at++
	out := jinja.NewDict()
	for first := true; !p.take('}'); first = false {
		if !first && !p.take(',') {
			return nil, false
		}
		if p.take('}') {
			break
		}
		k, ok := p.value(depth + 1)
		key, isText := k.(string)
		if !ok || !isText || !p.take(':') {
			return nil, false
		}
		v, ok := p.value(depth + 1)
		if !ok {
			return nil, false
		}
		out.Set(key, v)
	}
	return out, true
}

// escapes are the escape sequences of Python and JSON that stand for one character.
var escapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", 'b': "\b", 'f': "\f", '\\': `\`, '\'': "'", '"': `"`, '/': "/", '0': "\x00"}

func (p *literal) quoted(quote byte) (jinja.Value, bool) {
	p.at++
	var b strings.Builder
	for p.at < len(p.text) {
		c := p.text[p.at]
		p.at++
		switch {
		case c == quote:
			return b.String(), true
		case c != '\\':
			b.WriteByte(c)
		case p.at == len(p.text):
			return nil, false
		default:
			p.escape(&b)
		}
	}
	return nil, false
}

// escape reads what follows a backslash. An unknown escape stands for itself.
func (p *literal) escape(b *strings.Builder) {
	c := p.text[p.at]
	p.at++
	if text, ok := escapes[c]; ok {
		b.WriteString(text)
		return
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits > 0 && p.at+digits <= len(p.text) {
		if n, err := strconv.ParseUint(p.text[p.at:p.at+digits], 16, 32); err == nil && utf8.ValidRune(rune(n)) {
			p.at += digits
			b.WriteRune(rune(n))
			return
		}
	}
	b.WriteByte('\\')
	b.WriteByte(c)
}

// word reads a number or the name of a constant.
func (p *literal) word() (jinja.Value, bool) {
	end := p.at
	for end < len(p.text) && strings.IndexByte(",)]}: \t\r\n", p.text[end]) < 0 {
		end++
	}
	text := p.text[p.at:end]
	p.at = end
	switch text {
	case "True", "true":
		return true, true
	case "False", "false":
		return false, true
	case "None", "null":
		return nil, true
	}
	v, err := jinja.Decode([]byte(strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+")))
	return v, err == nil && text != ""
}
