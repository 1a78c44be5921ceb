package answer

import (
	"math/big"
)

// parser reads tokens by recursive descent. Every path into itself passes deeper.
type parser struct {
	tokens []token
	at     int
	depth  int
	bars   int // open | of absolute values
	angles int // open arguments of functions of angles
	sign   int // what \pm means in this reading: 1 or -1
	pm     bool
}

// parse reads a cleaned text.
func parse(text string) (*node, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, sign: 1}
	first, err := p.whole()
	if err != nil || !p.pm {
		return first, err
	}
	second, err := (&parser{tokens: tokens, sign: -1}).whole()
	if err != nil {
		return nil, err
	}
	return &node{op: opBare, args: []*node{first, second}}, nil
}

func (p *parser) whole() (*node, error) {
	n, err := p.list("")
	if err != nil {
		return nil, err
	}
	if p.peek().kind != tokEnd {
		return nil, noFormula("%q is left over", p.peek().text)
	}
	return n, nil
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != tokEnd {
		p.at++
	}
	return t
}

// is reports whether the next token is one of marks or names.
func (p *parser) is(texts ...string) bool {
	t := p.peek()
	if t.kind == tokMark || t.kind == tokName {
		for _, text := range texts {
			if t.text == text {
				return true
			}
		}
	}
	return false
}

func (p *parser) accept(texts ...string) bool {
	if p.is(texts...) {
		p.at++
		return true
	}
	return false
}

func (p *parser) deeper() error {
	if p.depth++; p.depth > maxDepth {
		return noFormula("nested more than %d deep", maxDepth)
	}
	return nil
}

// list reads elements up to closing, which it leaves. One element is itself.
func (p *parser) list(closing string) (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	if closing != "" && p.is(closing) {
		return &node{op: opBare}, nil
	}
	var all []*node
	var ends []int // where a semicolon stands behind
	for {
		n, err := p.union()
		if err != nil {
			return nil, err
		}
		all = append(all, n)
		if p.is(";") {
			ends = append(ends, len(all))
		}
		if !p.accept(",", ";") {
			break
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	if groups := len(ends) + 1; closing == "" && groups > 1 && groups < len(all) {
		return grouped(all, ends), nil
	}
	return &node{op: opBare, args: all}, nil
}

// grouped reads p=1, q=2; p=3, q=4 as a list of two lists.
func grouped(all []*node, ends []int) *node {
	out := &node{op: opBare}
	start := 0
	for _, end := range append(ends, len(all)) {
		if group := all[start:end]; len(group) == 1 {
			out.args = append(out.args, group[0])
		} else {
			out.args = append(out.args, &node{op: opBare, args: group})
		}
		start = end
	}
	return out
}

func (p *parser) union() (*node, error) {
	n, err := p.relation()
	if err != nil {
		return nil, err
	}
	for p.accept("cup") {
		right, err := p.relation()
		if err != nil {
			return nil, err
		}
		if n.op != opUnion {
			n = &node{op: opUnion, args: []*node{n}}
		}
		n.args = append(n.args, right)
	}
	return n, nil
}

func (p *parser) sum() (*node, error) {
	var parts []*node
	for {
		sign := 1
		for p.is("+", "-", "pm", "mp") {
			switch p.next().text {
			case "-":
				sign = -sign
			case "pm":
				p.pm = true
				sign *= p.sign
			case "mp":
				p.pm = true
				sign *= -p.sign
			}
		}
		n, err := p.product()
		if err != nil {
			return nil, err
		}
		if sign < 0 {
			if n, err = negated(n); err != nil {
				return nil, err
			}
		}
		parts = append(parts, n)
		if !p.is("+", "-", "pm", "mp") {
			return join(opAdd, parts...)
		}
	}
}

func integer(n int64) *node { return &node{op: opNum, num: big.NewRat(n, 1)} }

// join makes a node of scalars, or of matrices. It returns a single part unchanged.
func join(o op, parts ...*node) (*node, error) {
	if len(parts) == 1 {
		return parts[0], nil
	}
	if hasMatrix(parts) {
		return joinMatrices(o, parts)
	}
	for _, n := range parts {
		if !n.scalar() {
			return nil, noFormula("arithmetic with a list")
		}
	}
	return &node{op: o, args: parts}, nil
}

func inverse(n *node) (*node, error) { return join(opPow, n, integer(-1)) }

// product reads factors, with or without a sign between them.
func (p *parser) product() (*node, error) {
	n, err := p.mixed()
	if err != nil {
		return nil, err
	}
	parts := []*node{n}
	for {
		divide := p.is("/", "div")
		switch {
		case p.accept("*", "cdot", "times", "/", "div"):
		case p.startsFactor():
		default:
			return join(opMul, parts...)
		}
		n, err := p.signed()
		if err != nil {
			return nil, err
		}
		if divide {
			if n, err = inverse(n); err != nil {
				return nil, err
			}
		}
		parts = append(parts, n)
	}
}

// signed reads a factor that may carry a sign, as after a sign of multiplication.
func (p *parser) signed() (*node, error) {
	negative := false
	for p.is("+", "-") {
		negative = p.next().text == "-" != negative
	}
	n, err := p.factor()
	if err != nil || !negative {
		return n, err
	}
	return negated(n)
}

// negated keeps a number a number.
func negated(n *node) (*node, error) {
	if n.op == opNum {
		return &node{op: opNum, num: new(big.Rat).Neg(n.num)}, nil
	}
	return join(opMul, integer(-1), n)
}

// mixed reads a factor, or a whole number and a proper fraction beside it.
func (p *parser) mixed() (*node, error) {
	first := p.peek()
	n, err := p.factor()
	if err != nil || !first.whole || n.op != opNum {
		return n, err
	}
	rest := p.tokens[p.at:]
	var part *node
	switch {
	case len(rest) > 3 && rest[0].whole && rest[1].text == "/" && rest[2].whole:
		p.at += 3
		part, err = p.fraction(rest[0].num, rest[2].num)
	case p.is("frac"):
		start := p.at
		if part, err = p.factor(); err != nil {
			return nil, err
		}
		if value, ok := part.rat(); !ok || value.Cmp(big.NewRat(1, 1)) >= 0 || value.Sign() < 0 {
			p.at = start // a product
			return n, nil
		}
	case rest[0].kind == tokNum:
		return nil, noFormula("two numbers side by side")
	default:
		return n, nil
	}
	if err != nil {
		return nil, err
	}
	return join(opAdd, n, part)
}

func (p *parser) fraction(num, den *big.Rat) (*node, error) {
	if den.Sign() == 0 {
		return nil, noFormula("division by zero")
	}
	return &node{op: opNum, num: new(big.Rat).Quo(num, den)}, nil
}

// startsFactor reports whether the next token begins a factor that is multiplied without a
// sign.
func (p *parser) startsFactor() bool {
	t := p.peek()
	switch t.kind {
	case tokNum:
		return true
	case tokName:
		return relations(t.text) == "" && !p.is("cup", "pm", "mp", "cdot", "times", "div", "over", "rfloor", "rceil", "rvert", "degree")
	case tokMark:
		return p.is("(", "{") || p.is("|") && p.bars == 0
	case tokEnd:
	}
	return false
}

// factor reads a primary with its powers, factorials and percent signs.
func (p *parser) factor() (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	n, err := p.primary()
	for err == nil {
		switch {
		case p.accept("^"):
			var exponent *node
			if exponent, err = p.argument(); err == nil {
				n, err = join(opPow, n, exponent)
			}
		case p.accept("!"):
			n, err = call("factorial", n)
		case p.accept("%"):
			n, err = call(opPercent, n)
		case p.accept("degree"):
			if p.angles > 0 {
				n, err = join(opMul, n, degree())
			}
		default:
			return n, nil
		}
	}
	return nil, err
}

func call(name op, args ...*node) (*node, error) {
	for _, n := range args {
		if !n.scalar() {
			return nil, noFormula("%s of a list", name)
		}
	}
	return &node{op: name, args: args}, nil
}

// argument reads what belongs to ^ or to a command: a group, one sign, or a
// number of one digit where LaTeX takes one.
func (p *parser) argument() (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	if p.accept("-") {
		n, err := p.argument()
		if err != nil {
			return nil, err
		}
		return negated(n)
	}
	n, err := p.primary()
	if err != nil || !p.is("^") {
		return n, err
	}
	p.at++
	exponent, err := p.argument() // powers of powers group to the right
	if err != nil {
		return nil, err
	}
	return join(opPow, n, exponent)
}
