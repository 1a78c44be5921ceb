package answer

import "math/big"

func (e *evaluation) function(o op, z complexNumber) (complexNumber, error) {
	switch o {
	case "sqrt":
		return e.sqrt(z)
	case "exp":
		return e.complexes.exp(z)
	case "ln":
		return e.complexes.ln(z)
	case "abs":
		return e.real(e.reals.sqrt(e.norm(z))), nil
	case "floor", "ceil":
		return e.step(o, z)
	case "sin", "cos", "tan", "cot", "sec", "csc":
		return e.circular(o, z)
	case "sinh", "cosh", "tanh":
		up, err := e.complexes.exp(z)
		if err != nil {
			return z, err
		}
		down, err := e.inverse(up)
		if err != nil {
			return z, err
		}
		sinh, cosh := e.scale(e.add(up, e.neg(down)), big.NewFloat(0.5)), e.scale(e.add(up, down), big.NewFloat(0.5))
		return e.choose(string(o[:3]), sinh, cosh)
	case "arctan":
		return e.atanOf(z)
	case "arcsin":
		return e.asin(z)
	case "arccos":
		angle, err := e.asin(z)
		half := e.pi()
		half.SetMantExp(half, -1)
		return e.add(e.real(half), e.neg(angle)), err
	default:
		return z, errNoValue
	}
}

// choose picks what is named sin, cos, tan, cot, sec or csc from a sine and a cosine.
func (e *evaluation) choose(name string, sin, cos complexNumber) (complexNumber, error) {
	over, under := e.real(e.int(1)), e.real(e.int(1))
	switch name {
	case "sin":
		return sin, nil
	case "cos":
		return cos, nil
	case "tan":
		over, under = sin, cos
	case "cot":
		over, under = cos, sin
	case "sec":
		under = cos
	case "csc":
		under = sin
	}
	if under.re.Sign() == 0 && under.im.Sign() == 0 || e.norm(under).MantExp(nil) < -int(e.prec) {
		return over, errNoValue // a pole, but for rounding
	}
	down, err := e.inverse(under)
	return e.mul(over, down), err
}

func (e *evaluation) circular(o op, z complexNumber) (complexNumber, error) {
	sin, cos, err := e.sinCosOf(z)
	if err != nil {
		return z, err
	}
	return e.choose(string(o), sin, cos)
}

// step rounds a real number that is not so near to an integer that rounding decides.
func (e *evaluation) step(o op, z complexNumber) (complexNumber, error) {
	if z = e.dropTinyImaginary(z); z.im.Sign() != 0 {
		return z, errNoValue
	}
	whole, _ := z.re.Int(nil)
	apart := e.complexes.float().Sub(z.re, e.complexes.float().SetInt(whole))
	nearest := new(big.Float).Copy(apart)
	if one := big.NewFloat(1); nearest.Abs(nearest).Cmp(big.NewFloat(0.5)) > 0 {
		nearest.Sub(one, nearest)
	}
	if nearest.Sign() == 0 || nearest.MantExp(nil) < -int(e.prec)/2 {
		return z, errNoValue
	}
	switch {
	case o == "floor" && z.re.Sign() < 0:
		whole.Sub(whole, big.NewInt(1))
	case o == "ceil" && z.re.Sign() > 0:
		whole.Add(whole, big.NewInt(1))
	}
	return e.real(e.complexes.float().SetInt(whole)), nil
}
