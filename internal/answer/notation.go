package answer

import (
	"slices"
	"strings"
)

// over reads the lower part of {a \over b}.
func (p *parser) over(n *node, closing string) (*node, error) {
	below, err := p.list(closing)
	if err != nil {
		return nil, err
	}
	if below, err = inverse(below); err != nil {
		return nil, err
	}
	return join(opMul, n, below)
}

// series reads \sum_{k=1}^{n} and what is added.
func (p *parser) series(o op) (*node, error) {
	if !p.accept("_") || !p.accept("{") {
		return nil, noFormula("%s without a lower bound", o)
	}
	name := p.next()
	if name.kind != tokName || len(name.text) != 1 || !p.accept("=") {
		return nil, noFormula("%s over no variable", o)
	}
	low, err := p.sum()
	if err != nil {
		return nil, err
	}
	if !p.accept("}") || !p.accept("^") {
		return nil, noFormula("%s without an upper bound", o)
	}
	high, err := p.argument()
	if err != nil {
		return nil, err
	}
	body, err := p.product()
	if err != nil {
		return nil, err
	}
	for _, n := range []*node{low, high, body} {
		if !n.scalar() {
			return nil, noFormula("%s of a list", o)
		}
	}
	body.index(name.text)
	return &node{op: o, name: name.text, args: []*node{low, high, body}}, nil
}

// index marks the terms of a sequence, such as a_k under \sum_k: one symbol that has
// another value in each term, so that they equal themselves alone.
func (n *node) index(name string) {
	if _, sub, ok := strings.Cut(n.name, "_"); ok && n.op == opSym && strings.Contains(sub, name) {
		n.op = opIndexed
	}
	n.text = ""
	for _, a := range n.args {
		a.index(name)
	}
}

// relations maps what stands between two sums to one sign for each meaning.
func relations(name string) string {
	switch name {
	case "=", "in", "equiv":
		return "="
	case "approx", "simeq", "sim", "doteq":
		return "~"
	case "<", "lt":
		return "<"
	case ">", "gt":
		return ">"
	case "le", "leq", "leqslant", "leqq":
		return "<="
	case "ge", "geq", "geqslant", "geqq":
		return ">="
	case "ne", "neq":
		return "!="
	case ":", "colon":
		return ":"
	}
	return ""
}

// relation reads a sum, or several with relations between them.
func (p *parser) relation() (*node, error) {
	if relations(p.peek().text) == "~" {
		p.at++ // about 1.41
	}
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	terms, signs := []*node{first}, []string{}
	for {
		t := p.peek()
		sign := relations(t.text)
		if sign == "" || t.kind != tokMark && t.kind != tokName {
			break
		}
		p.at++
		n, err := p.sum()
		if err != nil {
			return nil, err
		}
		terms, signs = append(terms, n), append(signs, sign)
	}
	return related(terms, signs)
}

// related makes one node of terms and the signs between them.
func related(terms []*node, signs []string) (*node, error) {
	same := func(allowed ...string) bool {
		for _, s := range signs {
			if !slices.Contains(allowed, s) {
				return false
			}
		}
		return true
	}
	switch {
	case len(signs) == 0:
		return terms[0], nil
	case same(":"):
		for _, n := range terms {
			if !n.scalar() {
				return nil, noFormula("a ratio of lists")
			}
		}
		return &node{op: opRatio, args: terms}, nil
	case len(signs) == 1 && signs[0] == "!=":
		return &node{op: opUnequal, args: terms}, nil
	case same("=", "~"):
		return chain(terms, signs), nil
	case same("<", "<="):
		return ordered(terms, signs)
	case same(">", ">="):
		slices.Reverse(terms)
		slices.Reverse(signs)
		return ordered(terms, signs)
	default:
		return nil, noFormula("relations of several kinds")
	}
}

// ordered makes a node of terms that ascend.
func ordered(terms []*node, signs []string) (*node, error) {
	strict := func(i int) bool { return signs[i] == "<" || signs[i] == ">" }
	switch len(signs) {
	case 1:
		if strict(0) {
			return &node{op: opLess, args: terms}, nil
		}
		return &node{op: opAtMost, args: terms}, nil
	case 2:
		brackets := []byte("[]")
		if strict(0) {
			brackets[0] = '('
		}
		if strict(1) {
			brackets[1] = ')'
		}
		return &node{op: opBetween, name: string(brackets), args: terms}, nil
	default:
		return nil, noFormula("more than two relations")
	}
}

// chain makes a node of terms that are equal. The last one counts, and that before a sign
// of approximation.
func chain(terms []*node, signs []string) *node {
	if len(signs) == 1 && signs[0] == "=" {
		return equation(terms[0], terms[1])
	}
	var meant []*node
	for i, n := range terms[1:] {
		if i+1 < len(signs) && signs[i+1] != "~" {
			continue
		}
		meant = append(meant, n)
	}
	named := isName(terms[0])
	if signs[0] == "~" && !named {
		meant = append([]*node{terms[0]}, meant...)
	}
	if named {
		for i := range meant {
			meant[i] = equation(terms[0], meant[i])
		}
	}
	if len(meant) == 1 {
		return meant[0]
	}
	return &node{op: opEither, args: meant}
}

// isName reports whether n only names what follows: x, f(x), (x,y).
func isName(n *node) bool {
	switch n.op {
	case opSym:
		return n.name != "pi"
	case opMul, opTuple:
		for _, a := range n.args {
			if a.op != opSym {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// equation reads (x,y) = (1,2) as two equations.
func equation(left, right *node) *node {
	if left.op != opTuple || right.op != opTuple || len(left.args) != len(right.args) || !isName(left) {
		return &node{op: opEqual, args: []*node{left, right}}
	}
	all := make([]*node, len(left.args))
	for i := range all {
		all[i] = equation(left.args[i], right.args[i])
	}
	return &node{op: opBare, args: all}
}
