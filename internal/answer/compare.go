package answer

import (
	"crypto/sha256"
	"errors"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
)

// Two formulas are equal when they have the same values at random points. The points are
// drawn from the formulas, so that no answer can be made to agree at those points and
// nowhere else. Values that are not rational are computed twice, with more bits the second
// time: equal ones come closer, different ones stay apart.

// Bounds of a comparison.
const (
	wantedPoints = 6
	triedPoints  = 32
	fewBits      = 320
	manyBits     = 512
	// sameBits is how close equal values must come, and apartBits how far from each other
	// different ones must stay, both as a share of their size.
	sameBits  = 400
	apartBits = 200
	// least is the size below which values count as if they had it, as a power of two.
	least = -34
)

// comparison is the values of two formulas at points.
type comparison struct {
	a, b *node
	work *int
	rng  *rand.Rand
	// free are the variables of both, and whole those that are drawn as whole numbers.
	free  []string
	whole map[string]bool
	// realRoots takes the real root of a negative number where the degree is odd.
	realRoots bool
}

func newComparison(a, b *node, work *int) *comparison {
	c := &comparison{a: a, b: b, work: work, whole: map[string]bool{}}
	names := map[string]bool{}
	a.variables(names, c.whole, false)
	b.variables(names, c.whole, false)
	c.free = slices.Sorted(maps.Keys(names))
	c.rng = rand.New(rand.NewChaCha8(sha256.Sum256([]byte(a.key() + "\x00" + b.key())))) //nolint:gosec // points need no secret
	return c
}

// variables records the free variables of n. Variables of factorials and of the bounds of
// sums stand for whole numbers.
func (n *node) variables(found, whole map[string]bool, counted bool) {
	switch n.op {
	case opNum:
		return
	case opSym:
		if n.name == "pi" || n.name == "e" || n.name == "i" || n.name == "infty" {
			return
		}
		found[n.name] = true
		if counted {
			whole[n.name] = true
		}
		return
	case opSum, opProd:
		inner := map[string]bool{}
		n.args[0].variables(found, whole, true)
		n.args[1].variables(found, whole, true)
		n.args[2].variables(inner, whole, counted)
		delete(inner, n.name)
		maps.Copy(found, inner)
		return
	default:
	}
	counted = counted || n.op == "factorial" || n.op == "binomial"
	for _, a := range n.args {
		a.variables(found, whole, counted)
	}
}

// draw chooses a point.
func (c *comparison) draw() map[string]*big.Rat {
	at := make(map[string]*big.Rat, len(c.free))
	for _, name := range c.free {
		if c.whole[name] {
			at[name] = big.NewRat(c.rng.Int64N(60), 1)
			continue
		}
		at[name] = big.NewRat(c.rng.Int64N(2_000_001)-1_000_000, 100_000+c.rng.Int64N(900_001))
	}
	return at
}

// equal reports whether a and b agree; a point where one has no value counts for nothing.
func (c *comparison) equal() tri {
	wanted, tried := wantedPoints, triedPoints
	if len(c.free) == 0 {
		wanted, tried = 1, 1
	}
	for range tried {
		verdict, err := c.atPoint(c.draw())
		switch {
		case errors.Is(err, errWork):
			return open
		case err != nil:
			continue
		case verdict != yes:
			return verdict
		}
		if wanted--; wanted == 0 {
			return yes
		}
	}
	return open
}

// equalOrReal reports whether a and b agree, also when x^{2/3} is read over the real
// numbers, where (-8)^{2/3} is 4.
func (c *comparison) equalOrReal() tri {
	verdict := c.equal()
	if verdict == no && len(c.free) > 0 && (c.a.hasOddRoot() || c.b.hasOddRoot()) {
		c.realRoots = true
		verdict = c.equal()
	}
	return verdict
}

// hasOddRoot reports whether a part of n is raised to a fraction with an odd denominator.
func (n *node) hasOddRoot() bool {
	if n.op == opPow {
		if r, ok := n.args[1].rat(); ok && !r.IsInt() && r.Denom().Bit(0) == 1 {
			return true
		}
	}
	for _, a := range n.args {
		if a.hasOddRoot() {
			return true
		}
	}
	return false
}

// atPoint compares the values at one point.
func (c *comparison) atPoint(at map[string]*big.Rat) (tri, error) {
	var apart [2]*big.Float
	for i, bits := range []uint{fewBits, manyBits} {
		e := &evaluation{complexes{reals{bits}}, at, c.work, c.realRoots}
		x, err := e.value(c.a)
		if err != nil {
			return open, err
		}
		y, err := e.value(c.b)
		if err != nil {
			return open, err
		}
		if x.exact != nil && y.exact != nil {
			return truth(x.exact.Cmp(y.exact) == 0), nil
		}
		apart[i] = e.apart(e.float(x), e.float(y))
	}
	return settled(apart[0], apart[1]), nil
}

// apart is the distance of two values as a share of their size, squared.
func (e *evaluation) apart(x, y complexNumber) *big.Float {
	size := e.norm(x)
	if other := e.norm(y); other.Cmp(size) > 0 {
		size = other
	}
	if floor := new(big.Float).SetMantExp(big.NewFloat(1), 2*least); size.Cmp(floor) < 0 {
		size = floor
	}
	return e.complexes.float().Quo(e.norm(e.add(x, e.neg(y))), size)
}

// settled decides by the distances with few and with many bits.
func settled(few, many *big.Float) tri {
	switch {
	case many.Sign() == 0 || many.MantExp(nil) < -2*sameBits:
		return yes
	case many.MantExp(nil) < -2*apartBits:
		return open
	}
	// Different values stay as far apart.
	if few.Sign() == 0 || few.MantExp(nil)-many.MantExp(nil) > 1 || many.MantExp(nil)-few.MantExp(nil) > 1 {
		return open
	}
	return no
}

// proportional reports whether a and b agree up to one factor, as the two sides of
// equations do that say the same.
func (c *comparison) proportional() tri {
	if len(c.free) == 0 {
		return open
	}
	var first [2]value
	wanted := wantedPoints
	for range triedPoints {
		e := &evaluation{complexes{reals{manyBits}}, c.draw(), c.work, c.realRoots}
		x, err := e.value(c.a)
		if err == nil {
			var y value
			if y, err = e.value(c.b); err == nil {
				switch {
				case first[0].exact == nil && first[0].near.re == nil:
					first = [2]value{x, y}
				case !e.cross(first, [2]value{x, y}):
					return no
				}
			}
		}
		if errors.Is(err, errWork) {
			return open
		}
		if err == nil {
			wanted--
		}
		if wanted == 0 {
			return yes
		}
	}
	return open
}

// cross reports whether two pairs have one ratio that is neither zero nor infinite.
func (e *evaluation) cross(p, q [2]value) bool {
	left, errLeft := e.join(opMul, p[0], q[1])
	right, errRight := e.join(opMul, p[1], q[0])
	if errLeft != nil || errRight != nil {
		return false
	}
	for _, v := range []value{p[0], p[1], q[0], q[1]} {
		if z := e.float(v); e.norm(z).Sign() == 0 {
			return false
		}
	}
	if left.exact != nil && right.exact != nil {
		return left.exact.Cmp(right.exact) == 0
	}
	d := e.apart(e.float(left), e.float(right))
	return d.Sign() == 0 || d.MantExp(nil) < -2*sameBits
}
