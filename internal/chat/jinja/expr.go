package jinja

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// expression reads `a if b else c` and everything that binds more tightly.
func (p *parser) expression() (expr, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer p.shallower()
	x, err := p.or()
	for err == nil && p.skipName("if") {
		c := condExpr{then: x}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipName("else") {
			if c.orElse, err = p.expression(); err != nil {
				return nil, err
			}
		}
		x = c
	}
	return x, err
}

// tuple reads an expression, or a tuple when commas follow. Without cond, an `if`
// that follows is not part of the expression.
func (p *parser) tuple(cond bool) (expr, error) {
	one := p.or
	if cond {
		one = p.expression
	}
	x, err := one()
	if err != nil || !p.isOp(",") {
		return x, err
	}
	items := []expr{x}
	for p.skipOp(",") {
		if p.tupleEnd() {
			break
		}
		if x, err = one(); err != nil {
			return nil, err
		}
		items = append(items, x)
	}
	return listExpr{items, true}, nil
}

func (p *parser) tupleEnd() bool {
	k := p.peek().kind
	return k == tokenVariableEnd || k == tokenBlockEnd || p.isOp(")")
}

func (p *parser) or() (expr, error) {
	x, err := p.and()
	for err == nil && p.skipName("or") {
		var y expr
		y, err = p.and()
		x = logicExpr{x, y, true}
	}
	return x, err
}

func (p *parser) and() (expr, error) {
	x, err := p.not()
	for err == nil && p.skipName("and") {
		var y expr
		y, err = p.not()
		x = logicExpr{x, y, false}
	}
	return x, err
}

func (p *parser) not() (expr, error) {
	if !p.skipName("not") {
		return p.compare()
	}
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer p.shallower()
	x, err := p.not()
	return notExpr{x}, err
}

func (p *parser) compare() (expr, error) {
	x, err := p.binary(0)
	if err != nil {
		return nil, err
	}
	c := compareExpr{first: x}
	for {
		op := p.compareOp()
		if op == "" {
			break
		}
		y, err := p.binary(0)
		if err != nil {
			return nil, err
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, y)
	}
	if len(c.ops) == 0 {
		return x, nil
	}
	return c, nil
}

func (p *parser) compareOp() string {
	t := p.peek()
	switch {
	case t.kind == tokenOperator && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
		p.advance()
		return t.text
	case p.skipName("in"):
		return "in"
	case p.isName("not") && p.tokens[p.pos+1].kind == tokenName && p.tokens[p.pos+1].text == "in":
		p.pos += 2
		return "not in"
	default:
		return ""
	}
}

// binary reads the left-associative operators of a level and those that bind more
// tightly: sum, concatenation, product, power.
func (p *parser) binary(level int) (expr, error) {
	levels := [][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}
	if level == len(levels) {
		return p.unary(true)
	}
	x, err := p.binary(level + 1)
	for err == nil {
		t := p.peek()
		if t.kind != tokenOperator || !slices.Contains(levels[level], t.text) {
			break
		}
		p.advance()
		var y expr
		y, err = p.binary(level + 1)
		x = binaryExpr{t.text, x, y}
	}
	return x, err
}

func (p *parser) unary(filters bool) (expr, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer p.shallower()
	var x expr
	var err error
	switch {
	case p.skipOp("-"):
		x, err = p.unary(false)
		x = signExpr{x, true}
	case p.skipOp("+"):
		x, err = p.unary(false)
		x = signExpr{x, false}
	default:
		x, err = p.primary()
	}
	if err == nil {
		x, err = p.postfix(x)
	}
	for err == nil && filters {
		switch {
		case p.skipOp("|"):
			x, err = p.filter(x)
		case p.skipName("is"):
			x, err = p.test(x)
		case p.isOp("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
	}
	return x, err
}

func (p *parser) primary() (expr, error) {
	t := p.peek()
	switch t.kind {
	case tokenName:
		p.advance()
		switch t.text {
		case "true", "True":
			return constExpr{true}, nil
		case "false", "False":
			return constExpr{false}, nil
		case "none", "None":
			return constExpr{nil}, nil
		}
		return nameExpr(t.text), nil
	case tokenString:
		var b strings.Builder
		for p.peek().kind == tokenString {
			b.WriteString(p.advance().text)
		}
		return constExpr{b.String()}, nil
	case tokenInteger:
		p.advance()
		n, ok := new(big.Int).SetString(t.text, 10)
		if !ok {
			return nil, p.fail("bad number %s", t)
		}
		return constExpr{integer(n)}, nil
	case tokenFloat:
		p.advance()
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			return nil, p.fail("bad number %s", t)
		}
		return constExpr{f}, nil
	default:
	}
	switch {
	case p.skipOp("("):
		return p.parenthesis()
	case p.skipOp("["):
		items, err := p.items("]")
		return listExpr{items, false}, err
	case p.skipOp("{"):
		return p.dict()
	}
	return nil, p.fail("expected an expression, got %s", t)
}

func (p *parser) parenthesis() (expr, error) {
	if p.skipOp(")") {
		return listExpr{nil, true}, nil
	}
	x, err := p.tuple(true)
	if err != nil {
		return nil, err
	}
	return x, p.wantOp(")")
}

// items reads expressions up to the closing operator. A final comma is allowed.
func (p *parser) items(closer string) ([]expr, error) {
	var items []expr
	for !p.skipOp(closer) {
		if len(items) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
			if p.skipOp(closer) {
				break
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, x)
	}
	return items, nil
}

func (p *parser) dict() (expr, error) {
	var d dictExpr
	for !p.skipOp("}") {
		if len(d.keys) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
			if p.skipOp("}") {
				break
			}
		}
		k, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.wantOp(":"); err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, k), append(d.values, v)
	}
	return d, nil
}

func (p *parser) postfix(x expr) (expr, error) {
	for {
		var err error
		switch {
		case p.skipOp("."):
			t := p.advance()
			switch t.kind {
			case tokenName:
				x = attrExpr{x, t.text}
			case tokenInteger:
				n, _ := strconv.ParseInt(t.text, 10, 64) // a number out of range becomes an index that no list has
				x = itemExpr{x, constExpr{n}}
			default:
				return nil, p.fail("expected a name after the dot")
			}
		case p.skipOp("["):
			x, err = p.subscript(x)
		case p.isOp("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) subscript(x expr) (expr, error) {
	var bounds [3]expr
	for i := range bounds {
		if !p.isOp(":") && !p.isOp("]") {
			var err error
			if bounds[i], err = p.expression(); err != nil {
				return nil, err
			}
		}
		if p.skipOp("]") {
			if i == 0 {
				if bounds[0] == nil {
					return nil, p.fail("expected a subscript")
				}
				return itemExpr{x, bounds[0]}, nil
			}
			return sliceExpr{x, bounds}, nil
		}
		if i == 2 {
			break
		}
		if err := p.wantOp(":"); err != nil {
			return nil, err
		}
	}
	return nil, p.fail(`expected "]", got %s`, p.peek())
}

func (p *parser) call(f expr) (expr, error) {
	args, err := p.args()
	return callExpr{f, args}, err
}

func (p *parser) args() (args, error) {
	var a args
	if err := p.wantOp("("); err != nil {
		return a, err
	}
	for n := 0; !p.skipOp(")"); n++ {
		if n > 0 {
			if err := p.wantOp(","); err != nil {
				return a, err
			}
			if p.skipOp(")") {
				break
			}
		}
		if p.isOp("*") || p.isOp("**") {
			return a, p.fail("unpacked arguments are not supported")
		}
		next := p.tokens[min(p.pos+1, len(p.tokens)-1)]
		named := p.peek().kind == tokenName && next.kind == tokenOperator && next.text == "="
		if named {
			a.names = append(a.names, p.advance().text)
			p.advance()
		} else if len(a.names) > 0 {
			return a, p.fail("positional argument after a named one")
		}
		x, err := p.expression()
		if err != nil {
			return a, err
		}
		a.values = append(a.values, x)
	}
	return a, nil
}

// filter reads the name and arguments of a filter of x.
func (p *parser) filter(x expr) (expr, error) {
	name, err := p.want(tokenName, "the name of a filter")
	if err != nil {
		return nil, err
	}
	f := filterExpr{x: x, name: name.text}
	if p.isOp("(") {
		f.args, err = p.args()
	}
	return f, err
}

// test reads the test that follows `is`.
func (p *parser) test(x expr) (expr, error) {
	negated := p.skipName("not")
	name, err := p.want(tokenName, "the name of a test")
	if err != nil {
		return nil, err
	}
	t := testExpr{x: x, name: name.text}
	next := p.peek()
	switch {
	case p.isOp("("):
		t.args, err = p.args()
	case next.kind == tokenString, next.kind == tokenInteger, next.kind == tokenFloat, p.isOp("["), p.isOp("{"),
		next.kind == tokenName && !slices.Contains([]string{"else", "or", "and", "if", "is", "in", "not"}, next.text):
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		t.args.values = []expr{arg}
	}
	if negated {
		return notExpr{t}, err
	}
	return t, err
}
