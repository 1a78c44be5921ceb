package answer

import "math/big"

// special compares what may be written in several shapes: chains, ratios, and sets of real
// numbers. It is negative for everything else.
func (m *matcher) special(a, b *node) tri {
	switch {
	case a.op == opEither || b.op == opEither:
		return m.either(a, b)
	case a.op == opRatio || b.op == opRatio:
		return m.ratios(a, b)
	case isRange(a) || isRange(b):
		return m.ranges(a, b)
	default:
		return -1
	}
}

// either is equal to what one of its parts is equal to.
func (m *matcher) either(a, b *node) tri {
	if a.op != opEither {
		a, b = b, a
	}
	verdict := no
	for _, part := range a.args {
		verdict = max(verdict, m.same(part, b))
	}
	return verdict
}

// ratios compares 1:2 with 2:4 and with one half.
func (m *matcher) ratios(a, b *node) tri {
	if a.op != opRatio {
		a, b = b, a
	}
	if b.op != opRatio {
		if len(a.args) != 2 || !b.scalar() {
			return no
		}
		down := &node{op: opPow, args: []*node{a.args[1], integer(-1)}}
		return m.same(&node{op: opMul, args: []*node{a.args[0], down}}, b)
	}
	if len(a.args) != len(b.args) {
		return no
	}
	if m.hasZero(a) || m.hasZero(b) { // 12:00 is not 1:00
		return m.each(a.args, b.args)
	}
	verdict := yes
	for i := range a.args[1:] {
		left := &node{op: opMul, args: []*node{a.args[0], b.args[i+1]}}
		right := &node{op: opMul, args: []*node{b.args[0], a.args[i+1]}}
		if verdict = min(verdict, m.same(left, right)); verdict == no {
			break
		}
	}
	return verdict
}

// hasZero reports whether a part of a ratio is zero.
func (m *matcher) hasZero(ratio *node) bool {
	for _, n := range ratio.args {
		if m.same(n, integer(0)) != no {
			return true
		}
	}
	return false
}

// equations compares two equations: side by side, or as the same up to a factor.
func (m *matcher) equations(a, b *node) tri {
	verdict := max(m.each(a.args, b.args), m.each(a.args, []*node{b.args[1], b.args[0]}))
	x, y := difference(a), difference(b)
	if verdict == yes || x == nil || y == nil {
		return verdict
	}
	return max(verdict, m.compute("~", x, y, (*comparison).proportional))
}

// difference is the left side of an equation less the right one; nil where there is none.
func difference(n *node) *node {
	if !n.args[0].scalar() || !n.args[1].scalar() {
		return nil
	}
	return &node{op: opAdd, args: []*node{n.args[0], {op: opMul, args: []*node{integer(-1), n.args[1]}}}}
}

// degree is one degree of an angle in radians.
func degree() *node {
	return &node{op: opMul, args: []*node{{op: opNum, num: big.NewRat(1, 180)}, {op: opSym, name: "pi"}}}
}

// closeShare is how far from each other, as a share of their size, two numbers may be that
// are one number but for rounding.
const closeShare = 1e-4

// Close reports whether an answer is a truth but for rounding: numbers within 1e-4 of their
// size, or within that of a hundred times or a hundredth, which are percent; lists,
// intervals and matrices part by part. Two whole numbers are close only when they are equal.
func Close(said, truth string) bool { return (&Allowance{maxWork}).Close(said, truth) }

// Close is the function Close within the allowance.
func (a *Allowance) Close(said, truth string) bool {
	if CheckTruth(truth) != nil {
		return false
	}
	if _, err := truthOf(said); err != nil {
		return false
	}
	x, errX := parse(clean(said))
	y, errY := parse(clean(truth))
	if errX != nil || errY != nil {
		return false
	}
	work := a.take()
	defer func() { a.giveBack(work) }()
	return near(x, y, &work)
}

// near is Close for formulas.
func near(a, b *node, work *int) bool {
	a, b = bare(a), bare(b)
	if a.scalar() && b.scalar() {
		return nearNumbers(a, b, work)
	}
	if a.op != b.op || a.name != b.name || a.scalar() || len(a.args) != len(b.args) {
		return false
	}
	for i := range a.args {
		if !near(a.args[i], b.args[i], work) {
			return false
		}
	}
	return len(a.args) > 0
}

// bare takes the name of a value and a percent sign away.
func bare(n *node) *node {
	if n.op == opEqual && isName(n.args[0]) {
		n = n.args[1]
	}
	if n.op == opPercent {
		n = n.args[0]
	}
	return n
}

func nearNumbers(a, b *node, work *int) bool {
	x, okX := a.rat()
	y, okY := b.rat()
	whole := okX && x.IsInt()
	if okX && okY && whole && y.IsInt() {
		return x.Cmp(y) == 0
	}
	if !isBound(a) || !isBound(b) {
		return a.key() == b.key()
	}
	e := &evaluation{complexes{reals{fewBits}}, map[string]*big.Rat{}, work, false}
	p, errP := e.value(a)
	q, errQ := e.value(b)
	if errP != nil || errQ != nil {
		return false
	}
	got, want := e.float(p), e.float(q)
	if e.norm(got).Sign() == 0 || e.norm(want).Sign() == 0 {
		return false
	}
	for _, by := range []*big.Rat{big.NewRat(1, 1), big.NewRat(100, 1), big.NewRat(1, 100)} {
		target, err := e.join(opMul, q, value{exact: by})
		if err != nil {
			continue
		}
		apart, _ := e.apart(got, e.float(target)).Float64()
		if apart == 0 || apart <= closeShare*closeShare && !whole {
			return true
		}
	}
	return false
}
