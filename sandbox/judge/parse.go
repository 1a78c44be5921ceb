package judge

import (
	"math/big"
	"strings"
)

// parser reads tokens by recursive descent. Every path into itself passes deeper.
type parser struct {
	tokens []token
	at     int
	depth  int
	bars   int // open | of absolute values
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

// is tells whether the next token is one of marks or names.
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
	for {
		n, err := p.union()
		if err != nil {
			return nil, err
		}
		all = append(all, n)
		if !p.accept(",", ";") {
			break
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return &node{op: opBare, args: all}, nil
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

// relation reads a sum, or two with a relation between them.
func (p *parser) relation() (*node, error) {
	left, err := p.sum()
	if err != nil || !p.is("=", "<", ">", "le", "leq", "ge", "geq", "ne", "neq", "in") {
		return left, err
	}
	mark := p.next().text
	right, err := p.sum()
	if err != nil {
		return nil, err
	}
	switch mark {
	case "<":
		return &node{op: opLess, args: []*node{left, right}}, nil
	case ">":
		return &node{op: opLess, args: []*node{right, left}}, nil
	case "le", "leq":
		return &node{op: opAtMost, args: []*node{left, right}}, nil
	case "ge", "geq":
		return &node{op: opAtMost, args: []*node{right, left}}, nil
	case "ne", "neq":
		return &node{op: opUnequal, args: []*node{left, right}}, nil
	default:
		return &node{op: opEqual, args: []*node{left, right}}, nil
	}
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
			if n, err = join(opMul, integer(-1), n); err != nil {
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

// join makes a node of scalars; one alone stays what it is.
func join(o op, parts ...*node) (*node, error) {
	if len(parts) == 1 {
		return parts[0], nil
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

// startsFactor tells whether what follows is multiplied without a sign.
func (p *parser) startsFactor() bool {
	t := p.peek()
	switch t.kind {
	case tokNum:
		return true
	case tokName:
		return !p.is("cup", "le", "leq", "ge", "geq", "ne", "neq", "in", "pm", "mp", "cdot", "times", "div")
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
		return join(opMul, integer(-1), n)
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

func (p *parser) primary() (*node, error) {
	t := p.next()
	switch t.kind {
	case tokNum:
		return &node{op: opNum, num: t.num}, nil
	case tokName:
		return p.named(t.text)
	case tokMark:
		return p.bracket(t.text)
	case tokEnd:
	}
	return nil, noFormula("it ends too early")
}

// bracket reads what an opening mark begins.
func (p *parser) bracket(open string) (*node, error) {
	closing := map[string]string{"(": ")", "[": "]", "{": "}", `\{`: `\}`, "|": "|"}[open]
	if closing == "" {
		return nil, noFormula("%q has no place here", open)
	}
	if open == "|" {
		return p.absolute()
	}
	bars := p.bars
	p.bars = 0
	n, err := p.list(closing)
	p.bars = bars
	if err != nil {
		return nil, err
	}
	round := open == "(" || open == "["
	end := p.next()
	if end.kind != tokMark || end.text != closing && (!round || end.text != ")" && end.text != "]") {
		return nil, noFormula("%q is not closed", open)
	}
	elements := []*node{n}
	if n.op == opBare {
		elements = n.args
	}
	switch {
	case open == `\{`, open == "{" && len(elements) != 1:
		return &node{op: opSet, args: elements}, nil
	case len(elements) == 1 && open != "[" && end.text == closing:
		return n, nil
	case !round:
		return nil, noFormula("an empty group")
	default:
		return &node{op: opTuple, name: open + end.text, args: elements}, nil
	}
}

func (p *parser) absolute() (*node, error) {
	p.bars++
	n, err := p.sum()
	p.bars--
	if err != nil {
		return nil, err
	}
	if !p.accept("|") {
		return nil, noFormula("| is not closed")
	}
	return call("abs", n)
}

// named reads a variable, a constant, a fraction, a root or a function.
func (p *parser) named(name string) (*node, error) {
	switch name {
	case "frac":
		return p.twoArguments(func(a, b *node) (*node, error) {
			b, err := inverse(b)
			if err != nil {
				return nil, err
			}
			return join(opMul, a, b)
		})
	case "binom", "dbinom", "tbinom":
		return p.twoArguments(func(a, b *node) (*node, error) { return call("binomial", a, b) })
	case "sqrt":
		return p.root()
	case "emptyset", "varnothing":
		return &node{op: opSet}, nil
	}
	if isFunction(name) {
		return p.function(op(name))
	}
	if len(name) > 1 && !isGreek(name) {
		return nil, noFormula("unknown command %.20q", name)
	}
	if p.accept("_") {
		sub := p.next()
		if sub.text == "{" {
			sub = p.next()
			if !p.accept("}") {
				return nil, noFormula("a subscript of more than one sign")
			}
		}
		switch sub.kind {
		case tokNum:
			name += "_" + sub.num.RatString()
		case tokName:
			name += "_" + sub.text
		case tokMark, tokEnd:
			return nil, noFormula("a subscript of no sign")
		}
	}
	return &node{op: opSym, name: name}, nil
}

// isGreek tells whether a command is a symbol.
func isGreek(name string) bool {
	const known = " pi infty alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell "
	return strings.Contains(known, " "+name+" ")
}

// twoArguments reads {a}{b}, and ab of two digits as LaTeX does.
func (p *parser) twoArguments(make func(a, b *node) (*node, error)) (*node, error) {
	if t := p.peek(); t.kind == tokNum && t.whole && t.num.Cmp(big.NewRat(10, 1)) >= 0 {
		text := t.num.RatString()
		p.at++
		a, _ := new(big.Rat).SetString(text[:1])
		b, _ := new(big.Rat).SetString(text[1:])
		if len(text) != 2 {
			return nil, noFormula("a fraction of %.20q", text)
		}
		return make(&node{op: opNum, num: a}, &node{op: opNum, num: b})
	}
	a, err := p.argument()
	if err != nil {
		return nil, err
	}
	b, err := p.argument()
	if err != nil {
		return nil, err
	}
	return make(a, b)
}

// root reads sqrt{x}, sqrt[n]{x} and sqrt(x).
func (p *parser) root() (*node, error) {
	degree := integer(2)
	if p.accept("[") {
		var err error
		if degree, err = p.sum(); err != nil {
			return nil, err
		}
		if !p.accept("]") {
			return nil, noFormula("the degree of a root is not closed")
		}
	}
	n, err := p.argument()
	if err != nil {
		return nil, err
	}
	if degree, err = inverse(degree); err != nil {
		return nil, err
	}
	if half, ok := degree.rat(); ok {
		degree = &node{op: opNum, num: half}
	}
	return join(opPow, n, degree)
}

// function reads the power, the base and the argument of a function.
func (p *parser) function(name op) (*node, error) {
	var power, base *node
	var err error
	for p.is("^", "_") {
		if p.next().text == "^" {
			power, err = p.argument()
		} else {
			base, err = p.argument()
		}
		if err != nil {
			return nil, err
		}
	}
	arg, err := p.operand()
	if err != nil {
		return nil, err
	}
	if power != nil && strings.Contains(" sin cos tan ", " "+string(name)+" ") {
		if value, ok := power.rat(); ok && value.Cmp(big.NewRat(-1, 1)) == 0 {
			name, power = "arc"+name, nil // the inverse function, not its reciprocal
		}
	}
	switch {
	case name == "lg":
		name, base = "ln", integer(10)
	case name == "log":
		name = "ln"
	}
	n, err := call(name, arg)
	if err == nil && base != nil {
		var below *node
		if below, err = call("ln", base); err == nil {
			if below, err = inverse(below); err == nil {
				n, err = join(opMul, n, below)
			}
		}
	}
	if err == nil && power != nil {
		n, err = join(opPow, n, power)
	}
	return n, err
}

// operand reads the argument of a function: a bracket, or factors without a
// sign between them up to the next function.
func (p *parser) operand() (*node, error) {
	if p.is("(", "{", "[") {
		return p.factor()
	}
	var parts []*node
	for {
		n, err := p.factor()
		if err != nil {
			return nil, err
		}
		parts = append(parts, n)
		if !p.startsFactor() || p.peek().kind == tokName && isFunction(p.peek().text) || p.is("(") {
			return join(opMul, parts...)
		}
	}
}
