package answer

import (
	"math/big"
	"slices"
	"strings"
)

// primary reads a number, a name with what belongs to it, or a bracket.
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
	if err == nil && open == "{" && p.accept("over") {
		n, err = p.over(n, closing)
	}
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
	case len(elements) == 1 && end.text == closing && (open != "[" || n.op == opMatrix):
		return n, nil
	case !round:
		return nil, noFormula("an empty group")
	default:
		return &node{op: opTuple, name: open + end.text, args: elements}, nil
	}
}

func (p *parser) absolute() (*node, error) {
	p.bars++
	n, err := p.between("|", "abs")
	p.bars--
	return n, err
}

// determinant reads the matrix between two bars.
func (p *parser) determinant() (*node, error) {
	n, err := p.matrix()
	if err != nil {
		return nil, err
	}
	return determinant(n)
}

// between reads a sum up to closing and applies a function to it.
func (p *parser) between(closing string, name op) (*node, error) {
	n, err := p.sum()
	if err != nil {
		return nil, err
	}
	if !p.accept(closing) {
		return nil, noFormula("%s is not closed", name)
	}
	if n.op == opMatrix && name == "abs" {
		return determinant(n)
	}
	return call(name, n)
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
	case "matrix":
		return p.matrix()
	case "vmatrix":
		return p.determinant()
	case "sum":
		return p.series(opSum)
	case "prod":
		return p.series(opProd)
	case "lfloor":
		return p.between("rfloor", "floor")
	case "lceil":
		return p.between("rceil", "ceil")
	case "lvert":
		return p.between("rvert", "abs")
	case allReals:
		return &node{op: opSym, name: allReals}, nil
	case "overline", "bar", "vec", "hat", "widehat", "overrightarrow":
		return p.argument()
	}
	if isFunction(name) {
		return p.function(op(name))
	}
	if len(name) > 1 && !isGreek(name) {
		return nil, noFormula("unknown command %.20q", name)
	}
	if p.accept("_") {
		sub, err := p.subscript()
		if err != nil {
			return nil, err
		}
		name += "_" + sub
	}
	return &node{op: opSym, name: name}, nil
}

// subscript reads one sign, or in braces letters and digits, and sums of them.
func (p *parser) subscript() (string, error) {
	braced := p.accept("{")
	var out strings.Builder
	for {
		switch sub := p.next(); sub.kind {
		case tokNum:
			out.WriteString(sub.num.RatString())
		case tokName:
			out.WriteString(sub.text)
		case tokMark:
			if !braced || sub.text != "+" && sub.text != "-" && sub.text != "," {
				return "", errSubscript
			}
			out.WriteString(sub.text)
		case tokEnd:
			return "", errSubscript
		}
		if !braced || p.accept("}") {
			return out.String(), nil
		}
	}
}

var errSubscript = noFormula("a subscript of other than letters and digits")

// isGreek reports whether a command is a symbol.
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
	if r, ok := degree.rat(); ok && r.Cmp(big.NewRat(2, 1)) == 0 {
		return join(opPow, n, &node{op: opNum, num: big.NewRat(1, 2)})
	}
	return join(opRoot, n, degree)
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
	if isOfAngles(name) {
		p.angles++
		defer func() { p.angles-- }()
	}
	arg, err := p.operand()
	if err != nil {
		return nil, err
	}
	if power != nil && power.key() == "-1" && (name == "sin" || name == "cos" || name == "tan") {
		name, power = "arc"+name, nil // the inverse function, not its reciprocal
	}
	var n *node
	switch name {
	case "lg":
		n, err = logarithm(arg, integer(10))
	case "log", "ln":
		n, err = logarithm(arg, base)
	default:
		n, err = call(name, arg)
	}
	if err != nil || power == nil {
		return n, err
	}
	return join(opPow, n, power)
}

// isOfAngles reports whether a function takes an angle.
func isOfAngles(name op) bool {
	return slices.Contains([]op{"sin", "cos", "tan", "cot", "sec", "csc"}, name)
}

// logarithm is the natural one without a base.
func logarithm(arg, base *node) (*node, error) {
	n, err := call("ln", arg)
	if err != nil || base == nil {
		return n, err
	}
	below, err := call("ln", base)
	if err != nil {
		return nil, err
	}
	if below, err = inverse(below); err != nil {
		return nil, err
	}
	return join(opMul, n, below)
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
