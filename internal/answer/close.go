package answer

import "math/big"

// closeShare is how far from each other, as a share of their size, two numbers may be that
// are one number but for rounding.
const closeShare = 1e-4

// Close reports whether an answer is a truth but for rounding: numbers within 1e-4 of their
// size, or within that of a hundred times or a hundredth, which are percent; lists,
// intervals and matrices part by part. Two whole numbers are close only when they are equal.
func Close(said, truth string) bool {
	if CheckTruth(truth) != nil {
		return false
	}
	if _, err := truthOf(said); err != nil {
		return false
	}
	a, errA := parse(clean(said))
	b, errB := parse(clean(truth))
	work := maxWork
	return errA == nil && errB == nil && near(a, b, &work)
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
	e := &evaluation{complexes{reals{fewBits}}, nil, work}
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
