package answer

import (
	"maps"
	"math/big"
	"slices"
)

// tri is a truth value that may still be open.
type tri int

const (
	no tri = iota
	open
	yes
)

func truth(b bool) tri {
	if b {
		return yes
	}
	return no
}

// maxSteps bounds the comparisons of one answer: lists of lists have exponentially many.
const maxSteps = 20_000

// matcher compares formulas: lists and relations by their parts, values exactly where it
// can, and otherwise at random points.
type matcher struct {
	known    map[[2]string]tri // what was found by values
	computed bool              // the verdict needed values
	steps    int
	work     int
}

func newMatcher(work int) *matcher { return &matcher{known: map[[2]string]tri{}, work: work} }

// same compares two formulas.
func (m *matcher) same(a, b *node) tri {
	if m.steps++; m.steps > maxSteps {
		return open
	}
	if a.key() == b.key() {
		return yes
	}
	if verdict := m.special(a, b); verdict >= 0 {
		return verdict
	}
	if a.op == opBare && b.op == opTuple && b.name == "()" || b.op == opBare && a.op == opTuple && a.name == "()" {
		return m.each(a.args, b.args)
	}
	if unordered(a.op) && unordered(b.op) {
		return min(m.within(a.args, b.args), m.within(b.args, a.args))
	}
	switch {
	case a.op == opEqual && b.op == opEqual:
		return m.equations(a, b)
	case a.op == opEqual && b.scalar(), a.op == opEqual && a.args[0].op == opSym && b.op != opUnion:
		return m.defined(a, b)
	case b.op == opEqual && a.scalar(), b.op == opEqual && b.args[0].op == opSym && a.op != opUnion:
		return m.defined(b, a)
	case a.scalar() && b.scalar():
		return m.values(a, b)
	case a.op != b.op || a.name != b.name:
		return no
	case a.op == opUnion:
		return min(m.within(a.args, b.args), m.within(b.args, a.args))
	default:
		return m.each(a.args, b.args)
	}
}

// unordered reports whether a list has no order: sets, and lists without brackets.
func unordered(o op) bool { return o == opSet || o == opBare }

// defined compares "x = value" with a value.
func (m *matcher) defined(equation, value *node) tri {
	left := equation.args[0]
	names := left.op == opSym
	if left.op == opMul { // f(x) = ...
		names = true
		for _, n := range left.args {
			names = names && n.op == opSym
		}
	}
	if !names {
		return no
	}
	return m.same(equation.args[1], value)
}

// each compares element by element.
func (m *matcher) each(a, b []*node) tri {
	if len(a) != len(b) {
		return no
	}
	out := yes
	for i := range a {
		if out = min(out, m.same(a[i], b[i])); out == no {
			return no
		}
	}
	return out
}

// within reports whether every element of a is one of b.
func (m *matcher) within(a, b []*node) tri {
	out := yes
	for _, x := range a {
		found := no
		for _, y := range b {
			if found = max(found, m.same(x, y)); found == yes {
				break
			}
		}
		if out = min(out, found); out == no {
			return no
		}
	}
	return out
}

// values compares two scalars.
func (m *matcher) values(a, b *node) tri {
	keyA, keyB := a.key(), b.key()
	if keyA == keyB {
		return yes
	}
	x, okX := a.rat()
	y, okY := b.rat()
	if okX && okY {
		return truth(x.Cmp(y) == 0)
	}
	if verdict := monomials(a, b); verdict != open {
		return verdict
	}
	if keyA > keyB {
		a, b = b, a
	}
	return m.compute("", a, b, (*comparison).equalOrReal)
}

// compute compares by values, each pair once. A formula with terms of a sequence has no
// values except where a sum is empty, which would decide nothing.
func (m *matcher) compute(how string, a, b *node, f func(*comparison) tri) tri {
	if a.hasTerms() || b.hasTerms() {
		m.computed = true
		return open
	}
	at := [2]string{how + a.key(), b.key()}
	verdict, ok := m.known[at]
	if !ok {
		m.computed = true
		verdict = f(newComparison(a, b, &m.work))
		m.known[at] = verdict
	}
	return verdict
}

// hasTerms reports whether n has terms of a sequence.
func (n *node) hasTerms() bool {
	return n.op == opIndexed || slices.ContainsFunc(n.args, (*node).hasTerms)
}

// monomial is a product of a number and powers of symbols.
type monomial struct {
	factor    *big.Rat
	variables map[string]int64
	constants map[string]int64
}

// monomials compares two products: different variables, or different numbers
// beside the same variables, cannot be equal.
func monomials(a, b *node) tri {
	x := monomial{big.NewRat(1, 1), map[string]int64{}, map[string]int64{}}
	y := monomial{big.NewRat(1, 1), map[string]int64{}, map[string]int64{}}
	if !x.multiply(a, 1) || !y.multiply(b, 1) || x.factor.Sign() == 0 || y.factor.Sign() == 0 {
		return open
	}
	switch {
	case !maps.Equal(x.variables, y.variables):
		return no
	case maps.Equal(x.constants, y.constants):
		return truth(x.factor.Cmp(y.factor) == 0)
	default:
		return open
	}
}

// multiply multiplies m by n to the power of exponent. It returns false if n is no product
// of symbols.
func (m *monomial) multiply(n *node, exponent int64) bool {
	if r, ok := n.rat(); ok {
		r = power(r, big.NewRat(exponent, 1))
		if r == nil {
			return false
		}
		m.factor = new(big.Rat).Mul(m.factor, r)
		return fits(m.factor)
	}
	switch n.op {
	case opSym:
		into := m.variables
		if n.name == "pi" || n.name == "e" || n.name == "i" {
			into = m.constants
		}
		if into[n.name] += exponent; into[n.name] == 0 {
			delete(into, n.name)
		}
		return true
	case opMul:
		for _, a := range n.args {
			if !m.multiply(a, exponent) {
				return false
			}
		}
		return true
	case opPow:
		r, ok := n.args[1].rat()
		if !ok || !r.IsInt() || r.Num().BitLen() > 16 || exponent > maxExponent || exponent < -maxExponent {
			return false
		}
		return m.multiply(n.args[0], exponent*r.Num().Int64())
	default:
		return false
	}
}

// percent offers the second reading of a formula with a percent sign: 50% is a
// half, and also the 50 of a question that asks for percent. It returns nil
// unless exactly one side carries the sign.
func percent(a, b *node) (*node, *node) {
	switch {
	case a.op == opPercent && b.op != opPercent:
		return a.args[0], b
	case b.op == opPercent && a.op != opPercent:
		return a, b.args[0]
	}
	return nil, nil
}
