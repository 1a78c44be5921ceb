package answer

import (
	"math/big"
	"slices"
	"strings"
)

// op is the kind of a node.
type op string

// Kinds of nodes. The kind of a function is its name.
const (
	opNum     op = "num"
	opSym     op = "sym"
	opAdd     op = "+"
	opMul     op = "*"
	opPow     op = "^"
	opPercent op = "%"
	opRoot    op = "root" // of args[0], of the degree args[1]
	opSum     op = "sum"  // over name from args[0] to args[1] of args[2]
	opProd    op = "prod"
	opIndexed op = "indexed" // name, whose index a sum counts
	opTuple   op = "tuple"   // with its brackets in name
	opSet     op = "set"
	opBare    op = "bare" // a list without brackets
	opUnion   op = "union"
	opEqual   op = "="
	opLess    op = "<"
	opAtMost  op = "<="
	opUnequal op = "!="
	opBetween op = "between" // args[0] < args[1] < args[2]; name has a bracket for each end
	opEither  op = "either"  // the parts of a chain that may be meant
	opRatio   op = "ratio"
	opMatrix  op = "matrix" // with rows and columns in name
)

// node is a formula.
type node struct {
	op   op
	args []*node
	num  *big.Rat // of opNum
	name string   // of opSym; brackets of opTuple

	// Cached results; a formula belongs to one goroutine.
	text   string
	value  *big.Rat
	valued bool
}

// scalar reports whether n is one value, not a list or a relation of values.
func (n *node) scalar() bool {
	switch n.op {
	case opTuple, opSet, opBare, opUnion, opEqual, opLess, opAtMost, opUnequal, opBetween, opEither, opRatio, opMatrix:
		return false
	default:
		return true
	}
}

// key is the same for formulas that differ in the order of sums and products only.
func (n *node) key() string {
	if n.text == "" {
		n.text = n.describe()
	}
	return n.text
}

func (n *node) describe() string {
	switch n.op {
	case opNum:
		return n.num.RatString()
	case opSym:
		return n.name
	default:
	}
	parts := make([]string, len(n.args))
	for i, a := range n.args {
		parts[i] = a.key()
	}
	if n.op == opAdd || n.op == opMul {
		slices.Sort(parts)
	}
	return string(n.op) + n.name + "(" + strings.Join(parts, ",") + ")"
}

// Bounds of exact arithmetic; what is beyond them is left to the sandbox or undecided.
const (
	maxBits     = 1 << 15
	maxExponent = 1 << 14
	maxFactor   = 1000 // of factorials and binomials
)

func fits(r *big.Rat) bool {
	return r.Num().BitLen() <= maxBits && r.Denom().BitLen() <= maxBits
}

// rat returns the exact value of n when it is a rational number within the bounds.
func (n *node) rat() (*big.Rat, bool) {
	if !n.valued {
		n.value, n.valued = n.evaluate(), true
	}
	return n.value, n.value != nil
}

// evaluate returns nil where there is no such value.
func (n *node) evaluate() *big.Rat {
	if n.op == opNum {
		return n.num
	}
	if !n.scalar() || n.op == opSym || n.op == opIndexed || n.op == opSum || n.op == opProd {
		return nil
	}
	values := make([]*big.Rat, len(n.args))
	for i, a := range n.args {
		var ok bool
		if values[i], ok = a.rat(); !ok {
			return nil
		}
	}
	if r := apply(n.op, values); r != nil && fits(r) {
		return r
	}
	return nil
}

// apply returns nil where the value is not rational, not defined, or too great.
func apply(o op, v []*big.Rat) *big.Rat {
	switch o {
	case opAdd:
		return fold(v, (*big.Rat).Add)
	case opMul:
		return fold(v, (*big.Rat).Mul)
	case opPow:
		return power(v[0], v[1])
	case opPercent:
		return new(big.Rat).Quo(v[0], big.NewRat(100, 1))
	case "sqrt":
		return root(v[0])
	case opRoot:
		return rootOf(v[0], v[1])
	case "floor":
		return new(big.Rat).SetInt(floor(v[0]))
	case "ceil":
		low := floor(new(big.Rat).Neg(v[0]))
		return new(big.Rat).SetInt(low.Neg(low))
	case "abs":
		return new(big.Rat).Abs(v[0])
	case "factorial":
		if n, ok := small(v[0]); ok {
			return new(big.Rat).SetInt(new(big.Int).MulRange(1, n))
		}
	case "binomial":
		n, okN := small(v[0])
		k, okK := small(v[1])
		if okN && okK {
			return new(big.Rat).SetInt(new(big.Int).Binomial(n, k))
		}
	default:
	}
	return nil
}

func fold(v []*big.Rat, f func(z, x, y *big.Rat) *big.Rat) *big.Rat {
	r := v[0]
	for _, x := range v[1:] {
		if r = f(new(big.Rat), r, x); !fits(r) {
			return nil
		}
	}
	return r
}

func small(r *big.Rat) (int64, bool) {
	if !r.IsInt() || !r.Num().IsInt64() {
		return 0, false
	}
	n := r.Num().Int64()
	return n, n >= 0 && n <= maxFactor
}

// power raises to integers, and to halves of them where the root is rational.
func power(base, exponent *big.Rat) *big.Rat {
	if exponent.Denom().Cmp(big.NewInt(2)) == 0 {
		if base = root(base); base == nil {
			return nil
		}
		exponent = new(big.Rat).SetInt(exponent.Num())
	}
	if !exponent.IsInt() || exponent.Num().BitLen() > 32 {
		return nil
	}
	n := exponent.Num().Int64()
	size := n
	if n < 0 {
		size = -n
		if base.Sign() == 0 {
			return nil
		}
		base = new(big.Rat).Inv(base)
	}
	bits := int64(max(base.Num().BitLen(), base.Denom().BitLen()))
	if size > maxExponent || bits*size > maxBits || n == 0 && base.Sign() == 0 {
		return nil
	}
	e := big.NewInt(size)
	num := new(big.Int).Exp(base.Num(), e, nil)
	return new(big.Rat).SetFrac(num, new(big.Int).Exp(base.Denom(), e, nil))
}

// root returns the square root of a square.
func root(r *big.Rat) *big.Rat {
	if r.Sign() < 0 {
		return nil
	}
	num, den := new(big.Int).Sqrt(r.Num()), new(big.Int).Sqrt(r.Denom())
	square := func(x *big.Int) *big.Int { return new(big.Int).Mul(x, x) }
	if square(num).Cmp(r.Num()) != 0 || square(den).Cmp(r.Denom()) != 0 {
		return nil
	}
	return new(big.Rat).SetFrac(num, den)
}

// floor is the largest whole number that is not above r.
func floor(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) }

// rootOf returns the root of a power: of a negative number where the degree is odd.
func rootOf(x, degree *big.Rat) *big.Rat {
	if !degree.IsInt() || degree.Sign() <= 0 || degree.Num().BitLen() > 8 {
		return nil
	}
	n := degree.Num().Int64()
	if x.Sign() < 0 {
		if n%2 == 0 {
			return nil
		}
		if r := rootOf(new(big.Rat).Neg(x), degree); r != nil {
			return r.Neg(r)
		}
		return nil
	}
	num, den := intRoot(x.Num(), n), intRoot(x.Denom(), n)
	if num == nil || den == nil {
		return nil
	}
	return new(big.Rat).SetFrac(num, den)
}

// intRoot returns the n-th root of a perfect power, by bisection.
func intRoot(x *big.Int, n int64) *big.Int {
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(x.BitLen())/uint(n)+1)
	for low.Cmp(high) <= 0 {
		mid := new(big.Int).Add(low, high)
		mid.Rsh(mid, 1)
		switch new(big.Int).Exp(mid, big.NewInt(n), nil).Cmp(x) {
		case 0:
			return mid
		case -1:
			low = mid.Add(mid, big.NewInt(1))
		default:
			high = mid.Sub(mid, big.NewInt(1))
		}
	}
	return nil
}
