package answer

import (
	"errors"
	"math/big"
)

// errWork means that a formula costs more than a comparison may.
var errWork = errors.New("too much to compute")

// value is a number at a point: exact while it is rational and small enough.
type value struct {
	exact *big.Rat
	near  complexNumber
}

// evaluation computes the values of formulas at one point with one precision.
type evaluation struct {
	complexes
	at   map[string]*big.Rat // variables
	work *int                // what may be spent
	// realRoots takes the real root of a negative number where the degree is odd.
	realRoots bool
}

// Costs, in units of about a microsecond.
const (
	costNode     = 1
	costFunction = 100
	// bitsForUnit is how many bits of an exact number cost one unit.
	bitsForUnit = 64
	// maxWork bounds the comparison of one answer.
	maxWork = 200_000
	// maxTogether bounds the comparisons for one verdict.
	maxTogether = 300_000
	// maxTerms bounds the terms of a sum.
	maxTerms = 2000
)

func (e *evaluation) spend(n int) error {
	if *e.work -= n; *e.work < 0 {
		return errWork
	}
	return nil
}

// sizeCost is what arithmetic with a number costs.
func sizeCost(r *big.Rat) int { return (r.Num().BitLen() + r.Denom().BitLen()) / bitsForUnit }

func exactly(r *big.Rat) value { return value{exact: r} }

// float is the value as a complex number.
func (e *evaluation) float(v value) complexNumber {
	if v.exact != nil {
		return e.real(e.complexes.float().SetRat(v.exact))
	}
	return v.near
}

// value computes n at the point.
func (e *evaluation) value(n *node) (value, error) {
	if err := e.spend(costNode); err != nil {
		return value{}, err
	}
	switch n.op {
	case opNum:
		return exactly(n.num), nil
	case opSym:
		return e.symbol(n.name)
	case opSum, opProd:
		return e.series(n)
	case opIndexed:
		return value{}, errNoValue
	default:
	}
	if !n.scalar() {
		return value{}, errNoValue
	}
	args := make([]value, len(n.args))
	exact := true
	for i, a := range n.args {
		var err error
		if args[i], err = e.value(a); err != nil {
			return value{}, err
		}
		exact = exact && args[i].exact != nil
	}
	if exact {
		known := make([]*big.Rat, len(args))
		for i := range args {
			known[i] = args[i].exact
		}
		if r := apply(n.op, known); r != nil && fits(r) {
			return exactly(r), e.spend(sizeCost(r))
		}
	}
	z, err := e.operate(n.op, args)
	if err == nil {
		z, err = checked(z)
	}
	return value{near: z}, err
}

func (e *evaluation) symbol(name string) (value, error) {
	if r, ok := e.at[name]; ok {
		return exactly(r), nil
	}
	switch name {
	case "pi":
		return value{near: e.real(e.pi())}, nil
	case "e":
		return value{near: e.real(e.reals.exp(e.int(1)))}, nil
	case "i":
		return value{near: complexNumber{e.complexes.float(), e.int(1)}}, nil
	default:
		return value{}, errNoValue
	}
}

// operate computes one operation on numbers that are not all rational, or whose result
// is not.
func (e *evaluation) operate(o op, args []value) (complexNumber, error) {
	first := e.float(args[0])
	switch o {
	case opAdd, opMul:
		for _, a := range args[1:] {
			if o == opAdd {
				first = e.add(first, e.float(a))
			} else {
				first = e.mul(first, e.float(a))
			}
		}
		return first, nil
	case opPow:
		return e.power(first, args[1])
	case opRoot:
		return e.root(args[0], args[1])
	case opPercent:
		return e.scale(first, e.complexes.float().SetRat(big.NewRat(1, 100))), nil
	default:
	}
	if err := e.spend(costFunction); err != nil {
		return first, err
	}
	return e.function(o, first)
}

// power raises to integers by products, to halves by roots.
func (e *evaluation) power(base complexNumber, exponent value) (complexNumber, error) {
	if r := exponent.exact; r != nil && r.IsInt() && r.Num().BitLen() <= 14 {
		if err := e.spend(r.Num().BitLen()); err != nil {
			return base, err
		}
		return e.powInt(base, r.Num().Int64())
	}
	if err := e.spend(3 * costFunction); err != nil {
		return base, err
	}
	if r := exponent.exact; r != nil && r.Cmp(big.NewRat(1, 2)) == 0 {
		return e.sqrt(base)
	} else if r != nil && e.realRoots && r.Denom().Bit(0) == 1 {
		if z := e.dropTinyImaginary(base); z.im.Sign() == 0 && z.re.Sign() < 0 {
			out, err := e.pow(e.neg(z), e.float(exponent))
			if r.Num().Bit(0) == 1 {
				out = e.neg(out)
			}
			return out, err
		}
	}
	return e.pow(base, e.float(exponent))
}

// root is the real one of a negative number where the degree is odd, as \sqrt[3]{-8}.
func (e *evaluation) root(x, degree value) (complexNumber, error) {
	if degree.exact == nil || degree.exact.Sign() == 0 {
		return complexNumber{}, errNoValue
	}
	z := e.dropTinyImaginary(e.float(x))
	inverse := exactly(new(big.Rat).Inv(degree.exact))
	odd := degree.exact.IsInt() && degree.exact.Num().Bit(0) == 1
	if odd && z.im.Sign() == 0 && z.re.Sign() < 0 {
		out, err := e.power(e.neg(z), inverse)
		return e.neg(out), err
	}
	return e.power(z, inverse)
}

// series adds or multiplies the terms of \sum or \prod: name from args[0] to args[1] of
// args[2].
func (e *evaluation) series(n *node) (value, error) {
	low, err := e.whole(n.args[0])
	if err != nil {
		return value{}, err
	}
	high, err := e.whole(n.args[1])
	if err != nil {
		return value{}, err
	}
	if high-low >= maxTerms {
		return value{}, errWork
	}
	o, sum := opAdd, exactly(new(big.Rat))
	if n.op == opProd {
		o, sum = opMul, exactly(big.NewRat(1, 1))
	}
	outer, shadowed := e.at[n.name]
	defer func() {
		if delete(e.at, n.name); shadowed {
			e.at[n.name] = outer
		}
	}()
	for k := low; k <= high; k++ {
		e.at[n.name] = big.NewRat(k, 1)
		term, err := e.value(n.args[2])
		if err != nil {
			return value{}, err
		}
		if sum, err = e.join(o, sum, term); err != nil {
			return value{}, err
		}
	}
	return sum, nil
}

func (e *evaluation) join(o op, a, b value) (value, error) {
	if a.exact != nil && b.exact != nil {
		if err := e.spend(sizeCost(a.exact) + sizeCost(b.exact)); err != nil {
			return value{}, err
		}
		if r := apply(o, []*big.Rat{a.exact, b.exact}); r != nil && fits(r) {
			return exactly(r), nil
		}
	}
	z, err := e.operate(o, []value{a, b})
	return value{near: z}, err
}

// whole is the value of a bound of a sum.
func (e *evaluation) whole(n *node) (int64, error) {
	v, err := e.value(n)
	if err == nil && (v.exact == nil || !v.exact.IsInt() || v.exact.Num().BitLen() > 31) {
		err = errNoValue
	}
	if err != nil {
		return 0, err
	}
	return v.exact.Num().Int64(), nil
}
