package answer

import (
	"errors"
	"math/big"
)

// errNoValue means that a formula has no value at a point: a pole, a logarithm of zero,
// a number beyond the bounds.
var errNoValue = errors.New("no value")

// Bounds of what is computed in floating point, as exponents of two.
const (
	maxMagnitude = 1 << 12
	maxExpArg    = 12
	maxAngle     = 1 << 10
)

// complexNumber is a value that is not rational.
type complexNumber struct{ re, im *big.Float }

// complexes computes with complex numbers; functions of several values have the
// principal one.
type complexes struct{ reals }

func (c complexes) real(x *big.Float) complexNumber { return complexNumber{x, c.float()} }

// checked refuses a number beyond the bounds.
func checked(z complexNumber) (complexNumber, error) {
	for _, x := range []*big.Float{z.re, z.im} {
		if x.IsInf() || x.Sign() != 0 && x.MantExp(nil) > maxMagnitude {
			return z, errNoValue
		}
	}
	return z, nil
}

func (c complexes) add(a, b complexNumber) complexNumber {
	return complexNumber{c.float().Add(a.re, b.re), c.float().Add(a.im, b.im)}
}

func (c complexes) mul(a, b complexNumber) complexNumber {
	if a.im.Sign() == 0 && b.im.Sign() == 0 {
		return c.real(c.float().Mul(a.re, b.re))
	}
	re := c.float().Sub(c.float().Mul(a.re, b.re), c.float().Mul(a.im, b.im))
	return complexNumber{re, c.float().Add(c.float().Mul(a.re, b.im), c.float().Mul(a.im, b.re))}
}

func (c complexes) scale(a complexNumber, by *big.Float) complexNumber {
	return complexNumber{c.float().Mul(a.re, by), c.float().Mul(a.im, by)}
}

// turn multiplies by i.
func (c complexes) turn(a complexNumber) complexNumber {
	return complexNumber{c.float().Neg(a.im), c.float().Set(a.re)}
}

func (c complexes) neg(a complexNumber) complexNumber { return c.scale(a, c.int(-1)) }

// norm is the square of the absolute value.
func (c complexes) norm(a complexNumber) *big.Float {
	return c.float().Add(c.float().Mul(a.re, a.re), c.float().Mul(a.im, a.im))
}

func (c complexes) inverse(a complexNumber) (complexNumber, error) {
	norm := c.norm(a)
	if norm.Sign() == 0 || norm.MantExp(nil) < -2*maxMagnitude {
		return a, errNoValue
	}
	return complexNumber{c.float().Quo(a.re, norm), c.float().Quo(c.float().Neg(a.im), norm)}, nil
}

// dropTinyImaginary replaces an imaginary part that is a rounding error by zero, so that it
// does not choose the side of a branch cut.
func (c complexes) dropTinyImaginary(a complexNumber) complexNumber {
	if a.im.Sign() != 0 && a.re.Sign() != 0 && a.im.MantExp(nil) < a.re.MantExp(nil)-int(c.prec)+spare {
		return c.real(a.re)
	}
	return a
}

func (c complexes) exp(a complexNumber) (complexNumber, error) {
	if a.re.Sign() != 0 && a.re.MantExp(nil) > maxExpArg || a.im.Sign() != 0 && a.im.MantExp(nil) > maxAngle {
		return a, errNoValue
	}
	size := c.reals.exp(a.re)
	if a.im.Sign() == 0 {
		return checked(c.real(size))
	}
	sin, cos := c.sinCos(a.im)
	return checked(complexNumber{c.float().Mul(size, cos), c.float().Mul(size, sin)})
}

func (c complexes) ln(a complexNumber) (complexNumber, error) {
	a = c.dropTinyImaginary(a)
	norm := c.norm(a)
	if norm.Sign() == 0 {
		return a, errNoValue
	}
	size := c.reals.ln(norm)
	size.SetMantExp(size, -1)
	return complexNumber{size, c.angle(a)}, nil
}

// angle is from -pi, which it is not, to pi.
func (c complexes) angle(a complexNumber) *big.Float {
	switch {
	case a.im.Sign() == 0 && a.re.Sign() >= 0:
		return c.float()
	case a.im.Sign() == 0:
		return c.pi()
	case a.re.Sign() == 0:
		half := c.pi()
		half.SetMantExp(half, -1)
		return half.Mul(half, c.int(int64(a.im.Sign())))
	}
	angle := c.atan(c.float().Quo(a.im, a.re))
	if a.re.Sign() < 0 {
		angle.Add(angle, c.float().Mul(c.pi(), c.int(int64(a.im.Sign()))))
	}
	return angle
}

func (c complexes) sqrt(a complexNumber) (complexNumber, error) {
	a = c.dropTinyImaginary(a)
	if a.im.Sign() == 0 {
		root := c.reals.sqrt(c.float().Abs(a.re))
		if a.re.Sign() < 0 {
			return c.turn(c.real(root)), nil
		}
		return c.real(root), nil
	}
	l, err := c.ln(a)
	if err != nil {
		return a, err
	}
	return c.exp(c.scale(l, big.NewFloat(0.5)))
}

// pow has the principal value; powers to integers are products.
func (c complexes) pow(a, b complexNumber) (complexNumber, error) {
	if a.re.Sign() == 0 && a.im.Sign() == 0 {
		if b.re.Sign() > 0 {
			return a, nil
		}
		return a, errNoValue
	}
	l, err := c.ln(a)
	if err != nil {
		return a, err
	}
	return c.exp(c.mul(l, b))
}

func (c complexes) powInt(a complexNumber, n int64) (complexNumber, error) {
	negative := n < 0
	if negative {
		n = -n
	}
	out := c.real(c.int(1))
	var err error
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			if out, err = checked(c.mul(out, a)); err != nil {
				return out, err
			}
		}
		if n > 1 {
			if a, err = checked(c.mul(a, a)); err != nil {
				return out, err
			}
		}
	}
	if negative {
		return c.inverse(out)
	}
	return out, nil
}

// sinCosOf are (e^iz - e^-iz)/2i and (e^iz + e^-iz)/2.
func (c complexes) sinCosOf(a complexNumber) (sin, cos complexNumber, err error) {
	if a.im.Sign() == 0 {
		if a.re.Sign() != 0 && a.re.MantExp(nil) > maxAngle {
			return sin, cos, errNoValue
		}
		s, k := c.sinCos(a.re)
		return c.real(s), c.real(k), nil
	}
	up, err := c.exp(c.turn(a))
	if err != nil {
		return sin, cos, err
	}
	down, err := c.exp(c.neg(c.turn(a)))
	if err != nil {
		return sin, cos, err
	}
	half := big.NewFloat(0.5)
	sin = c.neg(c.turn(c.scale(c.add(up, c.neg(down)), half)))
	return sin, c.scale(c.add(up, down), half), nil
}

// asin is -i ln(iz + sqrt(1 - z^2)).
func (c complexes) asin(a complexNumber) (complexNumber, error) {
	under := c.add(c.real(c.int(1)), c.neg(c.mul(a, a)))
	root, err := c.sqrt(under)
	if err != nil {
		return a, err
	}
	l, err := c.ln(c.add(c.turn(a), root))
	if err != nil {
		return a, err
	}
	return c.neg(c.turn(l)), nil
}

// atanOf is i/2 (ln(1 - iz) - ln(1 + iz)).
func (c complexes) atanOf(a complexNumber) (complexNumber, error) {
	if a = c.dropTinyImaginary(a); a.im.Sign() == 0 {
		return c.real(c.atan(a.re)), nil
	}
	one := c.real(c.int(1))
	under, err := c.ln(c.add(one, c.neg(c.turn(a))))
	if err != nil {
		return a, err
	}
	over, err := c.ln(c.add(one, c.turn(a)))
	if err != nil {
		return a, err
	}
	return c.scale(c.turn(c.add(under, c.neg(over))), big.NewFloat(0.5)), nil
}
