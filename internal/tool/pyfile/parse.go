// Package pyfile reads what a Python file declares: its functions with their
// parameters, type hints and docstrings, and the JSON schema of each. It reads the
// text and runs nothing, so a file may be judged where no sandbox is.
//
// Invariant: the result is a function of the text alone. That the text is valid
// Python, only Python itself can say.
package pyfile

import (
	"fmt"
	"strings"
)

// Problem is one fault of a file.
type Problem struct {
	Line int // from 1; 0 for the whole file
	Msg  string
}

// String is "line N: message".
func (p Problem) String() string {
	if p.Line == 0 {
		return p.Msg
	}
	return fmt.Sprintf("line %d: %s", p.Line, p.Msg)
}

// Function is a function at the top level of a file.
type Function struct {
	Name string
	Line int
	// Doc is its docstring, as Python would read it; "" where there is none.
	Doc    string
	Params []Param
	// Async and Decorated functions are something else than what their signature says.
	Async, Decorated bool
}

// Param is one parameter of a function.
type Param struct {
	Name string
	Line int
	// Hint is the text of its type hint, "" where there is none.
	Hint string
	// Optional says that it has a default.
	Optional bool
	// Stars is the number of stars before it: *args has one, **kwargs two.
	Stars int
	// PositionOnly says that a call cannot name it.
	PositionOnly bool
}

// Public reports whether the name of a function does not begin with an underscore.
func (f Function) Public() bool { return !strings.HasPrefix(f.Name, "_") }

// Parse returns the functions at the top level of a file in order. The problem says
// where the text cannot be read; it is nil where all can.
func Parse(src string) ([]Function, *Problem) {
	tokens, problem := lex(strings.ReplaceAll(strings.TrimPrefix(src, "\ufeff"), "\r\n", "\n"))
	if problem != nil {
		return nil, problem
	}
	var out []Function
	decorated := false
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		if !t.first || t.col > 0 {
			continue
		}
		if t.text == "@" {
			decorated = true
			continue
		}
		p := parser{tokens: tokens, at: i}
		f, ok, problem := p.function()
		if problem != nil {
			return out, problem
		}
		if ok {
			f.Decorated = decorated
			out = append(out, f)
		}
		decorated = false
	}
	return out, nil
}

// parser reads one function.
type parser struct {
	tokens []token
	at     int
}

// peek is the token at the place; at the end it is the end of a line.
func (p *parser) peek() token {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return token{kind: newline}
}

// take steps over the token if it has the text.
func (p *parser) take(text string) bool {
	if t := p.peek(); t.kind == newline || t.text != text {
		return false
	}
	p.at++
	return true
}

// function reads a definition; ok is false where something else stands.
func (p *parser) function() (f Function, ok bool, problem *Problem) {
	f.Line = p.peek().line
	f.Async = p.take("async")
	if !p.take("def") {
		return f, false, nil
	}
	f.Name = p.peek().text
	p.at++
	if !p.take("(") {
		return f, false, &Problem{f.Line, "has a def without parameters in parentheses"}
	}
	if f.Params, ok = p.params(); !ok {
		return f, false, &Problem{f.Line, fmt.Sprintf("has a def %s whose parameters cannot be read", f.Name)}
	}
	if p.until(":"); !p.take(":") {
		return f, false, &Problem{f.Line, fmt.Sprintf("has a def %s without a colon at its end", f.Name)}
	}
	if p.peek().kind == newline {
		p.at++
	}
	if t := p.peek(); t.kind == text && (!t.first || t.col > 0) {
		f.Doc, _ = unquote(t.text)
	}
	return f, true, nil
}

// params reads parameters up to the closing parenthesis.
func (p *parser) params() ([]Param, bool) {
	var out []Param
	for !p.take(")") {
		if p.take("/") {
			for i := range out {
				out[i].PositionOnly = true
			}
			p.take(",")
			continue
		}
		q, ok := p.param()
		if !ok {
			return nil, false
		}
		if q.Name != "" { // a bare * has no name
			out = append(out, q)
		}
		if !p.take(",") && (p.peek().kind == newline || p.peek().text != ")") {
			return nil, false
		}
	}
	return out, true
}

// param reads one parameter; a star alone has no name.
func (p *parser) param() (Param, bool) {
	q := Param{Line: p.peek().line}
	for p.take("*") {
		q.Stars++
	}
	if q.Stars == 1 && p.peek().text == "," {
		return q, true
	}
	t := p.peek()
	if t.kind != word {
		return q, false
	}
	q.Name = t.text
	p.at++
	if p.take(":") {
		q.Hint = p.until(",", "=", ")")
	}
	if q.Optional = p.take("="); q.Optional {
		p.until(",", ")")
	}
	return q, true
}

// until steps to the first of the signs outside of brackets, or to the end of the line,
// and returns what it passed.
func (p *parser) until(signs ...string) string {
	var b strings.Builder
	depth := 0
	for ; p.peek().kind != newline; p.at++ {
		t := p.peek()
		if t.kind == sign {
			for _, s := range signs {
				if depth == 0 && t.text == s {
					return b.String()
				}
			}
			switch t.text {
			case "(", "[", "{":
				depth++
			case ")", "]", "}":
				depth--
			}
		}
		b.WriteString(t.text)
	}
	return b.String()
}

// unquote returns the text of a literal; ok is false for bytes and formatted strings.
func unquote(literal string) (string, bool) {
	open := openingAt(literal)
	prefix := strings.ToLower(literal[:strings.IndexAny(literal, `"'`)])
	body := literal[open : len(literal)-(open-len(prefix))]
	switch {
	case strings.ContainsAny(prefix, "bft"):
		return "", false
	case strings.Contains(prefix, "r"):
		return body, true
	}
	return strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t", `\"`, `"`, `\'`, "'", "\\\n", "").Replace(body), true
}
