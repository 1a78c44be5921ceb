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

// Close reports whether an answer equals a truth up to rounding. Numbers agree within 1e-4
// of their size, also when one is a hundred times the other, which is percent; lists,
// intervals and matrices agree part by part. Two whole numbers are close only when equal.
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
	work := a.borrow()
	defer func() { a.giveBack(work) }()
	return near(x, y, &work)
}

// near is Close for formulas that were read.
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

// span is an interval of real numbers; a nil end is infinite.
type span struct {
	low, high         *node
	lowOpen, highOpen bool
}

// isRange reports whether n can only be a set of real numbers.
func isRange(n *node) bool {
	switch n.op {
	case opLess, opAtMost, opBetween, opUnion:
		return true
	case opSym:
		return n.name == allReals
	case opBare:
		for _, a := range n.args {
			if a.op != opLess && a.op != opAtMost && a.op != opBetween {
				return false
			}
		}
		return len(n.args) > 0
	default:
		return false
	}
}

// allReals is the name of all real numbers.
const allReals = "Reals"

// ranges compares sets of real numbers; negative when one is none.
func (m *matcher) ranges(a, b *node) tri {
	x, nameX, okX := spans(a)
	y, nameY, okY := spans(b)
	if !okX || !okY {
		return -1
	}
	if nameX != "" && nameY != "" && nameX != nameY {
		return no
	}
	x, y = joined(x), joined(y)
	return min(m.covered(x, y), m.covered(y, x))
}

// covered reports whether each span of x is one of y.
func (m *matcher) covered(x, y []span) tri {
	out := yes
	for _, s := range x {
		found := no
		for _, t := range y {
			found = max(found, m.sameSpan(s, t))
		}
		out = min(out, found)
	}
	return out
}

func (m *matcher) sameSpan(s, t span) tri {
	if s.lowOpen != t.lowOpen || s.highOpen != t.highOpen || (s.low == nil) != (t.low == nil) || (s.high == nil) != (t.high == nil) {
		return no
	}
	out := yes
	if s.low != nil {
		out = m.same(s.low, t.low)
	}
	if s.high != nil && out != no {
		out = min(out, m.same(s.high, t.high))
	}
	return out
}

// spans reads n as a set of real numbers, and the name of the variable that is in it.
func spans(n *node) (list []span, name string, ok bool) {
	switch n.op {
	case opUnion, opBare:
		for _, a := range n.args {
			part, of, ok := spans(a)
			if !ok || name != "" && of != "" && of != name {
				return nil, "", false
			}
			if of != "" {
				name = of
			}
			list = append(list, part...)
		}
		return list, name, len(list) > 0
	case opSym:
		return []span{{lowOpen: true, highOpen: true}}, "", n.name == allReals
	case opEqual: // x is in a set
		if n.args[0].op == opSym && !n.args[1].scalar() {
			list, _, ok = spans(n.args[1])
		}
		return list, n.args[0].key(), ok
	case opSet:
		for _, a := range n.args {
			list = append(list, span{low: a, high: a})
		}
		return list, "", true
	case opTuple:
		s, ok := interval(n)
		return []span{s}, "", ok
	case opBetween:
		if inside, at := magnitude(n.args[1]); inside != nil {
			return ring(n, inside, at)
		}
		s, ok := interval(&node{name: n.name, args: []*node{n.args[0], n.args[2]}})
		return []span{s}, n.args[1].key(), ok && isName(n.args[1])
	case opLess, opAtMost:
		return halfLine(n)
	default:
		return nil, "", false
	}
}

// halfLine reads x < 5 and 5 < x.
func halfLine(n *node) (list []span, name string, ok bool) {
	isOpen := n.op == opLess
	if inside, at := magnitude(n.args[0]); inside != nil { // |x| < 5
		return ball(inside, at, span{high: n.args[1], highOpen: isOpen})
	}
	if inside, at := magnitude(n.args[1]); inside != nil { // 5 < |x|
		return ball(inside, at, span{low: n.args[0], lowOpen: isOpen})
	}
	switch low, high := scaled(n.args[0], n.args[1]); {
	case low.op == opSym && isBound(high):
		return []span{{lowOpen: true, high: high, highOpen: isOpen}}, low.key(), true
	case high.op == opSym && isBound(low):
		return []span{{low: low, lowOpen: isOpen, highOpen: true}}, high.key(), true
	}
	return nil, "", false
}

// magnitude reads |x|, and |x + c| of a number c; nil for anything else.
func magnitude(n *node) (name, shift *node) {
	if n.op != "abs" {
		return nil, nil
	}
	switch inside := n.args[0]; {
	case inside.op == opSym:
		return inside, integer(0)
	case inside.op == opAdd && len(inside.args) == 2 && inside.args[0].op == opSym && isBound(inside.args[1]):
		return inside.args[0], inside.args[1]
	}
	return nil, nil
}

// ball is where |name + shift| is below or above a positive number: s has one end.
func ball(name, shift *node, s span) (list []span, of string, ok bool) {
	below, above := s.high != nil, s.low != nil
	switch {
	case below && positive(s.high):
		return []span{{low: less(s.high, shift, -1), lowOpen: s.highOpen, high: less(s.high, shift, 1), highOpen: s.highOpen}}, name.key(), true
	case above && positive(s.low):
		return []span{
			{lowOpen: true, high: less(s.low, shift, -1), highOpen: s.lowOpen},
			{low: less(s.low, shift, 1), lowOpen: s.lowOpen, highOpen: true},
		}, name.key(), true
	}
	return nil, "", false
}

// ring is where |name + shift| is between two positive numbers.
func ring(n, name, shift *node) (list []span, of string, ok bool) {
	low, high := n.args[0], n.args[2]
	if !positive(low) || !positive(high) {
		return nil, "", false
	}
	s := span{lowOpen: n.name[0] == '(', highOpen: n.name[1] == ')'}
	return []span{
		{low: less(high, shift, -1), lowOpen: s.highOpen, high: less(low, shift, -1), highOpen: s.lowOpen},
		{low: less(low, shift, 1), lowOpen: s.lowOpen, high: less(high, shift, 1), highOpen: s.highOpen},
	}, name.key(), true
}

// less is sign times n, less shift.
func less(n, shift *node, sign int64) *node {
	return folded(opAdd, folded(opMul, integer(sign), n), folded(opMul, integer(-1), shift))
}

// positive reports whether n is a number above zero.
func positive(n *node) bool {
	if r, ok := n.rat(); ok {
		return r.Sign() > 0
	}
	if !isBound(n) {
		return false
	}
	work := maxSign
	e := &evaluation{complexes: complexes{reals{fewBits}}, work: &work}
	v, err := e.value(n)
	if err != nil {
		return false
	}
	z := e.dropTinyImaginary(e.float(v))
	return z.im.Sign() == 0 && z.re.Sign() > 0
}

// maxSign is what the sign of a number may cost.
const maxSign = 5000

// scaled takes the factor of a variable to the other side: -x < -1 is 1 < x.
func scaled(low, high *node) (*node, *node) {
	variable, bound := low, high
	if isBound(low) {
		variable, bound = high, low
	}
	limit, okLimit := bound.rat()
	factor, symbol := big.NewRat(1, 1), variable
	for okLimit && symbol.op == opMul && len(symbol.args) == 2 {
		by, ok := symbol.args[0].rat()
		if !ok {
			break
		}
		factor, symbol = new(big.Rat).Mul(factor, by), symbol.args[1]
	}
	if symbol == variable || symbol.op != opSym || factor.Sign() == 0 || !fits(factor) {
		return low, high
	}
	quotient := &node{op: opNum, num: new(big.Rat).Quo(limit, factor)}
	if (variable == low) == (factor.Sign() > 0) {
		return symbol, quotient
	}
	return quotient, symbol
}

// isBound reports whether n is a number and no variable.
func isBound(n *node) bool {
	names := map[string]bool{}
	n.variables(names, map[string]bool{}, false)
	return n.scalar() && len(names) == 0
}

// interval reads two bounds between the brackets in name.
func interval(n *node) (s span, ok bool) {
	if len(n.args) != 2 || !n.args[0].scalar() || !n.args[1].scalar() {
		return s, false
	}
	s = span{low: n.args[0], high: n.args[1], lowOpen: n.name[0] == '(', highOpen: n.name[1] == ')'}
	if sign := infinite(s.low); sign < 0 {
		s.low, s.lowOpen = nil, true
	} else if sign > 0 {
		return s, false
	}
	if sign := infinite(s.high); sign > 0 {
		s.high, s.highOpen = nil, true
	} else if sign < 0 {
		return s, false
	}
	return s, true
}

// infinite is the sign of an infinite bound, and 0 for any other.
func infinite(n *node) int {
	switch {
	case n.op == opSym && n.name == "infty":
		return 1
	case n.op == opMul && len(n.args) == 2 && n.args[1].op == opSym && n.args[1].name == "infty":
		if r, ok := n.args[0].rat(); ok {
			return r.Sign()
		}
	}
	return 0
}

// joined merges spans that touch or overlap; those whose bounds cannot be compared stay.
func joined(list []span) []span {
	list = append([]span{}, list...)
	for i := 0; i < len(list); i++ {
		for j := 0; j < len(list); j++ {
			if i == j {
				continue
			}
			if s, ok := list[i].merged(list[j]); ok {
				list[i] = s
				list = append(list[:j], list[j+1:]...)
				i = -1 // again from the start
				break
			}
		}
		if len(list) > 64 {
			break
		}
	}
	return list
}

// merged joins s with t, which begins in s or where s ends.
func (s span) merged(t span) (span, bool) {
	begins, okB := compareBounds(s.low, t.low, -1)
	meets, okM := compareEnds(s.high, t.low)
	if !okB || !okM || begins > 0 || begins == 0 && s.lowOpen && !t.lowOpen || meets < 0 || meets == 0 && s.highOpen && t.lowOpen {
		return s, false
	}
	ends, ok := compareBounds(s.high, t.high, 1)
	if !ok {
		return s, false
	}
	if ends < 0 {
		s.high, s.highOpen = t.high, t.highOpen
	} else if ends == 0 {
		s.highOpen = s.highOpen && t.highOpen
	}
	return s, true
}

// compareBounds orders two bounds of one side; sign is the sign of a nil bound.
func compareBounds(a, b *node, sign int) (order int, ok bool) {
	switch {
	case a == nil && b == nil:
		return 0, true
	case a == nil:
		return sign, true
	case b == nil:
		return -sign, true
	}
	return compareRats(a, b)
}

// compareEnds orders an upper bound and a lower one.
func compareEnds(high, low *node) (order int, ok bool) {
	if high == nil || low == nil {
		return 1, true
	}
	return compareRats(high, low)
}

func compareRats(a, b *node) (order int, ok bool) {
	x, okX := a.rat()
	y, okY := b.rat()
	if !okX || !okY {
		return 0, a.key() == b.key()
	}
	return x.Cmp(y), true
}
