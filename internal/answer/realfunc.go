package answer

import (
	"math/big"
	"sync"
)

// Functions of real numbers with a stated number of bits, by reducing the argument and
// summing a series. An error of a few units in the last place is within what comparisons
// allow.

// constantBits is the precision of the constants.
const constantBits = 8192

// constants are made once.
var constants = sync.OnceValue(func() (c struct{ pi, ln2 *big.Float }) {
	fixed := func(n int64) *big.Int { return new(big.Int).Lsh(big.NewInt(n), constantBits+64) }
	// arc sums x/n - x/3n^3 + x/5n^5 ..., with equal signs for the hyperbolic one.
	arc := func(x, n int64, alternate bool) *big.Int {
		term := new(big.Int).Div(fixed(x), big.NewInt(n))
		sum, square := new(big.Int).Set(term), big.NewInt(n*n)
		for k := int64(3); term.Sign() != 0; k += 2 {
			term.Div(term, square)
			part := new(big.Int).Div(term, big.NewInt(k))
			if alternate && k%4 == 3 {
				part.Neg(part)
			}
			sum.Add(sum, part)
		}
		return sum
	}
	float := func(n *big.Int) *big.Float {
		f := new(big.Float).SetPrec(constantBits).SetInt(n)
		return f.SetMantExp(f, -constantBits-64)
	}
	pi := arc(16, 5, true) // Machin: pi = 16 arctan 1/5 - 4 arctan 1/239
	c.pi = float(pi.Sub(pi, arc(4, 239, true)))
	c.ln2 = float(arc(2, 3, false))
	return c
})

// reals computes with prec bits and a few more.
type reals struct{ prec uint }

// spare is the number of bits beyond prec with which functions compute.
const spare = 64

func (r reals) float() *big.Float { return new(big.Float).SetPrec(r.prec + spare) }

func (r reals) int(n int64) *big.Float { return r.float().SetInt64(n) }

func (r reals) pi() *big.Float  { return r.float().Set(constants().pi) }
func (r reals) ln2() *big.Float { return r.float().Set(constants().ln2) }

// negligible reports whether term adds nothing to sum any more.
func (r reals) negligible(term, sum *big.Float) bool {
	if term.Sign() == 0 {
		return true
	}
	size := -int(r.prec)
	if sum.Sign() != 0 {
		size = sum.MantExp(nil)
	}
	return term.MantExp(nil) < size-int(r.prec)-spare
}

// exp is for arguments below 2^16.
func (r reals) exp(x *big.Float) *big.Float {
	const halvings = 16
	k, _ := r.float().Quo(x, r.ln2()).Int64()
	rest := r.float().Mul(r.int(k), r.ln2())
	rest.Sub(x, rest)
	rest.SetMantExp(rest, -halvings)
	sum, term := r.int(1), r.int(1)
	for n := int64(1); ; n++ {
		term = r.float().Quo(r.float().Mul(term, rest), r.int(n))
		if r.negligible(term, sum) {
			break
		}
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum.SetMantExp(sum, int(k))
}

// ln is for positive numbers.
func (r reals) ln(x *big.Float) *big.Float {
	m := r.float()
	e := r.float().Set(x).MantExp(m) // x = m 2^e, m from 1/2
	if m.Cmp(big.NewFloat(0.7)) < 0 {
		m.SetMantExp(m, 1)
		e--
	}
	// ln m = 2 artanh((m-1)/(m+1))
	t := r.float().Quo(r.float().Sub(m, r.int(1)), r.float().Add(m, r.int(1)))
	sum := r.series(t, false)
	sum.SetMantExp(sum, 1)
	return sum.Add(sum, r.float().Mul(r.int(int64(e)), r.ln2()))
}

// series sums t + t^3/3 + t^5/5 ..., with signs that alternate for the arc tangent.
func (r reals) series(t *big.Float, alternate bool) *big.Float {
	square := r.float().Mul(t, t)
	if alternate {
		square.Neg(square)
	}
	sum, power := r.float().Set(t), r.float().Set(t)
	for n := int64(3); ; n += 2 {
		power.Mul(power, square)
		term := r.float().Quo(power, r.int(n))
		if r.negligible(term, sum) {
			return sum
		}
		sum.Add(sum, term)
	}
}

func (r reals) sqrt(x *big.Float) *big.Float { return r.float().Sqrt(x) }

// atan halves its argument four times.
func (r reals) atan(x *big.Float) *big.Float {
	const halvings = 4
	if x.MantExp(nil) > 1 { // beyond 1: pi/2 - arctan 1/x
		half := r.pi()
		half.SetMantExp(half, -1)
		if x.Sign() < 0 {
			half.Neg(half)
		}
		return half.Sub(half, r.atan(r.float().Quo(r.int(1), x)))
	}
	t := r.float().Set(x)
	for range halvings {
		root := r.sqrt(r.float().Add(r.int(1), r.float().Mul(t, t)))
		t = r.float().Quo(t, root.Add(root, r.int(1)))
	}
	sum := r.series(t, true)
	return sum.SetMantExp(sum, halvings)
}

// sinCos is for arguments below 2^1024.
func (r reals) sinCos(x *big.Float) (sin, cos *big.Float) {
	wide := r
	if x.Sign() != 0 {
		wide.prec += uint(max(0, x.MantExp(nil))) // lost by the reduction
	}
	half := wide.pi()
	half.SetMantExp(half, -1)
	k := new(big.Int)
	wide.float().Quo(x, half).Int(k)
	rest := wide.float().Mul(wide.float().SetInt(k), half)
	rest.Sub(x, rest)
	rest.SetPrec(r.prec + spare)
	sin, cos = r.taylor(rest, r.float().Set(rest), 1), r.taylor(rest, r.int(1), 0)
	quarter := new(big.Int).And(k, big.NewInt(3)).Int64() // k mod 4, also of a negative one
	for range quarter {
		sin, cos = cos, sin.Neg(sin)
	}
	return sin, cos
}

// taylor sums first - first x^2/((n+1)(n+2)) + ...
func (r reals) taylor(x, first *big.Float, n int64) *big.Float {
	square := r.float().Mul(x, x)
	square.Neg(square)
	sum, term := r.float().Set(first), first
	for {
		term = r.float().Quo(r.float().Mul(term, square), r.int((n+1)*(n+2)))
		n += 2
		if r.negligible(term, sum) {
			return sum
		}
		sum.Add(sum, term)
	}
}
