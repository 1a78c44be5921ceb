package jinja

import (
	"fmt"
	"slices"
)

// parser reads statements and expressions by Jinja2's grammar.
type parser struct {
	tokens []token
	pos    int
	depth  int
}

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) advance() token {
	t := p.tokens[p.pos]
	if t.kind != tokenEOF {
		p.pos++
	}
	return t
}

func (p *parser) fail(format string, args ...any) error {
	return fmt.Errorf("line %d: %s", p.peek().line, fmt.Sprintf(format, args...))
}

func (p *parser) isOp(op string) bool {
	t := p.peek()
	return t.kind == tokenOperator && t.text == op
}

func (p *parser) isName(name string) bool {
	t := p.peek()
	return t.kind == tokenName && t.text == name
}

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) wantOp(op string) error {
	if !p.skipOp(op) {
		return p.fail("expected %q, got %s", op, p.peek())
	}
	return nil
}

func (p *parser) wantName(name string) error {
	if !p.skipName(name) {
		return p.fail("expected %q, got %s", name, p.peek())
	}
	return nil
}

func (p *parser) want(kind tokenKind, what string) (token, error) {
	if p.peek().kind != kind {
		return token{}, p.fail("expected %s, got %s", what, p.peek())
	}
	return p.advance(), nil
}

// deeper bounds the recursion of the parser. The caller defers shallower.
func (p *parser) deeper() error {
	p.depth++
	if p.depth > maxDepth {
		return p.fail("nested deeper than %d", maxDepth)
	}
	return nil
}

func (p *parser) shallower() { p.depth-- }

// statements reads statements until it meets one whose name is in ends; that name is
// then the next token. Without ends it reads to the end of the template.
func (p *parser) statements(ends ...string) ([]stmt, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer p.shallower()
	var body []stmt
	for {
		switch t := p.peek(); t.kind {
		case tokenEOF:
			if len(ends) > 0 {
				return nil, p.fail("expected %q, got %s", ends[0], t)
			}
			return body, nil
		case tokenData:
			p.advance()
			body = append(body, text(t.text))
		case tokenVariableBegin:
			s, err := p.print()
			if err != nil {
				return nil, err
			}
			body = append(body, s)
		default:
			p.advance()
			if slices.Contains(ends, p.peek().text) && p.peek().kind == tokenName {
				return body, nil
			}
			s, err := p.statement()
			if err != nil {
				return nil, err
			}
			if _, err := p.want(tokenBlockEnd, "end of statement"); err != nil {
				return nil, err
			}
			body = append(body, s)
		}
	}
}

func (p *parser) print() (stmt, error) {
	line := p.advance().line
	x, err := p.tuple(true)
	if err != nil {
		return nil, err
	}
	_, err = p.want(tokenVariableEnd, "end of print")
	return printStmt{x, line}, err
}

// block reads the rest of a tag, the statements after it, and the name of the tag that
// ends it.
func (p *parser) block(end string) ([]stmt, error) {
	if _, err := p.want(tokenBlockEnd, "end of statement"); err != nil {
		return nil, err
	}
	body, err := p.statements(end)
	if err != nil {
		return nil, err
	}
	p.advance()
	return body, nil
}

func (p *parser) statement() (stmt, error) {
	t := p.peek()
	if t.kind != tokenName {
		return nil, p.fail("expected a statement, got %s", t)
	}
	p.advance()
	switch t.text {
	case "for":
		return p.forLoop(t.line)
	case "if":
		return p.ifElse()
	case "set":
		return p.set(t.line)
	case "macro":
		return p.macro()
	case "call":
		return p.callBlock(t.line)
	case "filter":
		return p.filterBlock(t.line)
	case "with":
		return p.with(t.line)
	case "generation":
		body, err := p.block("endgeneration")
		return generationStmt{body}, err
	case "break":
		return jump(breakLoop), nil
	case "continue":
		return jump(continueLoop), nil
	case "include", "import", "from", "extends", "block":
		return nil, p.fail("%s is not allowed: a chat template is one file", t.text)
	default:
		return nil, p.fail("unknown statement %q", t.text)
	}
}

func (p *parser) forLoop(line int) (stmt, error) {
	s := forStmt{line: line}
	var err error
	if s.target, err = p.target(); err != nil {
		return nil, err
	}
	if err := p.wantName("in"); err != nil {
		return nil, err
	}
	if s.over, err = p.tuple(false); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.test, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if p.isName("recursive") {
		return nil, p.fail("recursive loops are not supported")
	}
	if _, err := p.want(tokenBlockEnd, "end of statement"); err != nil {
		return nil, err
	}
	if s.body, err = p.statements("endfor", "else"); err != nil {
		return nil, err
	}
	if p.advance().text == "else" {
		if s.orElse, err = p.block("endfor"); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (p *parser) ifElse() (stmt, error) {
	var s ifStmt
	for {
		test, err := p.tuple(false)
		if err != nil {
			return nil, err
		}
		if _, err := p.want(tokenBlockEnd, "end of statement"); err != nil {
			return nil, err
		}
		body, err := p.statements("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.arms = append(s.arms, ifArm{test, body})
		switch p.advance().text {
		case "endif":
			return s, nil
		case "else":
			s.orElse, err = p.block("endif")
			return s, err
		}
	}
}

func (p *parser) set(line int) (stmt, error) {
	target, err := p.target()
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		x, err := p.tuple(true)
		return setStmt{target, x, line}, err
	}
	var filters expr = captured{}
	for p.skipOp("|") {
		if filters, err = p.filter(filters); err != nil {
			return nil, err
		}
	}
	body, err := p.block("endset")
	return setBlock{target, filters, body, line}, err
}

// target reads what a for or a set assigns to: a name, an attribute of a namespace,
// or a tuple of names.
func (p *parser) target() (target, error) {
	if p.skipOp("(") {
		if err := p.deeper(); err != nil {
			return target{}, err
		}
		defer p.shallower()
		t, err := p.target()
		if err != nil {
			return t, err
		}
		return t, p.wantOp(")")
	}
	var t target
	for {
		name, err := p.want(tokenName, "a name")
		if err != nil {
			return t, err
		}
		if slices.Contains(reserved(), name.text) {
			return t, p.fail("cannot assign to %q", name.text)
		}
		t.names = append(t.names, name.text)
		if len(t.names) == 1 && p.skipOp(".") {
			attr, err := p.want(tokenName, "a name")
			t.attr = attr.text
			return t, err
		}
		if !p.skipOp(",") {
			return t, nil
		}
		t.tuple = true
		if p.isName("in") || p.isOp("=") || p.isOp(")") {
			return t, nil
		}
	}
}

func reserved() []string {
	return []string{"true", "false", "none", "True", "False", "None", "and", "or", "not", "is", "in", "if", "else"}
}

// params reads the parameters of a macro or call block, with their defaults.
func (p *parser) params() ([]param, error) {
	if err := p.wantOp("("); err != nil {
		return nil, err
	}
	var out []param
	for !p.skipOp(")") {
		if len(out) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
		}
		name, err := p.want(tokenName, "a name")
		if err != nil {
			return nil, err
		}
		q := param{name: name.text}
		if p.skipOp("=") {
			if q.def, err = p.expression(); err != nil {
				return nil, err
			}
		}
		out = append(out, q)
	}
	return out, nil
}

func (p *parser) macro() (stmt, error) {
	name, err := p.want(tokenName, "a name")
	if err != nil {
		return nil, err
	}
	params, err := p.params()
	if err != nil {
		return nil, err
	}
	body, err := p.block("endmacro")
	return macroStmt{name.text, params, body}, err
}

func (p *parser) callBlock(line int) (stmt, error) {
	var params []param
	var err error
	if p.isOp("(") {
		if params, err = p.params(); err != nil {
			return nil, err
		}
	}
	x, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := x.(callExpr)
	if !ok {
		return nil, p.fail("expected a call")
	}
	body, err := p.block("endcall")
	return callStmt{call, params, body, line}, err
}

func (p *parser) filterBlock(line int) (stmt, error) {
	x, err := p.filter(captured{})
	for err == nil && p.skipOp("|") {
		x, err = p.filter(x)
	}
	if err != nil {
		return nil, err
	}
	body, err := p.block("endfilter")
	return filterStmt{x, body, line}, err
}

func (p *parser) with(line int) (stmt, error) {
	s := withStmt{line: line}
	for p.peek().kind != tokenBlockEnd {
		if len(s.targets) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
		}
		name, err := p.want(tokenName, "a name")
		if err != nil {
			return nil, err
		}
		if err := p.wantOp("="); err != nil {
			return nil, err
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, name.text), append(s.values, x)
	}
	var err error
	s.body, err = p.block("endwith")
	return s, err
}
