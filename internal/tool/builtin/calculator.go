package builtin

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// Calculator is the name of the tool for exact arithmetic.
const Calculator = "calculator"

const calculatorSchema = `{"type": "function", "function": {"name": "calculator", "description": "Evaluate an arithmetic expression exactly, with integers, decimals and fractions. Operators are + - * / // (floor division) % ** and parentheses, functions are abs, ceil, floor, gcd, lcm, max and min.", "parameters": {"type": "object", "properties": {"expression": {"type": "string", "description": "the expression, such as (1/3 + 0.25) * 12 ** 2"}}, "required": ["expression"]}}}`

// Bounds of an expression. The bits count a numerator or a denominator: with these bounds,
// the longest expression takes some milliseconds.
const (
	maxExpression = 1000 // bytes
	maxNesting    = 100
	maxBits       = 1 << 12
	approxDigits  = 12 // of a fraction that no decimal equals
)

// calculate answers a call of the calculator.
func calculate(arguments json.RawMessage) (string, error) {
	var given struct {
		Expression string `json:"expression"`
	}
	if err := json.Unmarshal(arguments, &given); err != nil {
		return "", errors.New("arguments must be an object with an expression")
	}
	if len(given.Expression) > maxExpression {
		return "", fmt.Errorf("the expression has %d bytes, above the limit of %d", len(given.Expression), maxExpression)
	}
	p := expressionParser{text: usualOperators.Replace(given.Expression)}
	value, err := p.sum()
	if err == nil && p.peek() != "" {
		err = p.unexpected()
	}
	if err != nil {
		return "", err
	}
	return formatNumber(value), nil
}

// usualOperators writes the operators of print as those of a program.
var usualOperators = strings.NewReplacer("\u00d7", "*", "\u22c5", "*", "\u00f7", "/", "\u2212", "-", "^", "**")

// formatNumber writes an integer or a decimal in full, and another fraction with its
// approximation.
func formatNumber(x *big.Rat) string {
	if x.IsInt() {
		return x.Num().String()
	}
	if digits, exact := x.FloatPrec(); exact {
		return x.FloatString(digits)
	}
	return fmt.Sprintf("%s (about %s)", x.RatString(), new(big.Float).SetPrec(maxBits).SetRat(x).Text('g', approxDigits))
}

// expressionParser evaluates an expression by recursive descent.
type expressionParser struct {
	text    string
	at      int
	nesting int
}

// operators are all tokens but numbers and names, the longer ones first.
var operators = []string{"**", "//", "+", "-", "*", "/", "%", "(", ")", ","}

// peek returns the token at the place, "" at the end.
func (p *expressionParser) peek() string {
	for p.at < len(p.text) && strings.ContainsRune(" \t\r\n", rune(p.text[p.at])) {
		p.at++
	}
	rest := p.text[p.at:]
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			return op
		}
	}
	end := 0
	for end < len(rest) && (isDigit(rest[end]) || rest[end] == '.') {
		end++
	}
	if end > 0 {
		return rest[:end]
	}
	for end < len(rest) && (rest[end] >= 'a' && rest[end] <= 'z' || rest[end] >= 'A' && rest[end] <= 'Z' || rest[end] == '_') {
		end++
	}
	if end == 0 && rest != "" {
		return string([]rune(rest)[:1])
	}
	return rest[:end]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// take reports whether one of the tokens is next, and passes it.
func (p *expressionParser) take(tokens ...string) (string, bool) {
	next := p.peek()
	for _, t := range tokens {
		if next == t {
			p.at += len(t)
			return t, true
		}
	}
	return "", false
}

func (p *expressionParser) unexpected() error {
	if next := p.peek(); next != "" {
		return fmt.Errorf("unexpected %q at character %d", next, p.at+1)
	}
	return errors.New("the expression ends too early")
}

// sum reads: product { (+ | -) product }.
func (p *expressionParser) sum() (*big.Rat, error) {
	return p.chain(p.product, "+", "-")
}

// product reads: sign { (* | / | // | %) sign }.
func (p *expressionParser) product() (*big.Rat, error) {
	return p.chain(p.sign, "*", "/", "//", "%")
}

// chain evaluates operators of one precedence from the left.
func (p *expressionParser) chain(operand func() (*big.Rat, error), operators ...string) (*big.Rat, error) {
	x, err := operand()
	for err == nil {
		op, ok := p.take(operators...)
		if !ok {
			break
		}
		var y *big.Rat
		if y, err = operand(); err == nil {
			x, err = apply(op, x, y)
		}
	}
	return x, err
}

// sign reads: (- | +) sign | power.
func (p *expressionParser) sign() (*big.Rat, error) {
	op, ok := p.take("-", "+")
	if !ok {
		return p.power()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	x, err := p.sign()
	if err == nil && op == "-" {
		x = new(big.Rat).Neg(x)
	}
	return x, err
}

// power reads: atom [ ** sign ].
func (p *expressionParser) power() (*big.Rat, error) {
	x, err := p.atom()
	if err != nil {
		return nil, err
	}
	if _, ok := p.take("**"); !ok {
		return x, nil
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	y, err := p.sign()
	if err != nil {
		return nil, err
	}
	return raise(x, y)
}

// atom reads: number | ( sum ) | name ( sum {, sum} ).
func (p *expressionParser) atom() (*big.Rat, error) {
	token := p.peek()
	switch {
	case token == "(":
		p.at++
		xs, err := p.list(1)
		if err != nil {
			return nil, err
		}
		return xs[0], nil
	case token != "" && (isDigit(token[0]) || token[0] == '.'):
		x, ok := new(big.Rat).SetString(token)
		if !ok {
			return nil, p.unexpected()
		}
		p.at += len(token)
		return bounded(x)
	}
	f, ok := functions[token]
	if !ok {
		return nil, p.unexpected()
	}
	p.at += len(token)
	if _, ok := p.take("("); !ok {
		return nil, p.unexpected()
	}
	xs, err := p.list(f.most)
	if err != nil {
		return nil, err
	}
	for x := xs[0]; ; x = xs[0] {
		if x, err = f.of(x, xs[min(1, len(xs)-1)]); err != nil || len(xs) <= 2 {
			return x, err
		}
		xs = append([]*big.Rat{x}, xs[2:]...)
	}
}

// list reads up to most values and the parenthesis that closes them.
func (p *expressionParser) list(most int) ([]*big.Rat, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var xs []*big.Rat
	for {
		x, err := p.sum()
		if err != nil {
			return nil, err
		}
		xs = append(xs, x)
		if _, ok := p.take(")"); ok {
			return xs, nil
		}
		if _, ok := p.take(","); !ok || len(xs) == most {
			return nil, p.unexpected()
		}
	}
}

func (p *expressionParser) enter() error {
	if p.nesting++; p.nesting > maxNesting {
		return fmt.Errorf("the expression is nested deeper than %d", maxNesting)
	}
	return nil
}

func (p *expressionParser) leave() { p.nesting-- }

// function is a function of the calculator: of gets its first two values, and its
// result with each further one.
type function struct {
	most int
	of   func(x, y *big.Rat) (*big.Rat, error)
}

var functions = map[string]function{
	"abs":   {1, func(x, _ *big.Rat) (*big.Rat, error) { return new(big.Rat).Abs(x), nil }},
	"floor": {1, func(x, _ *big.Rat) (*big.Rat, error) { return floor(x), nil }},
	"ceil":  {1, func(x, _ *big.Rat) (*big.Rat, error) { return new(big.Rat).Neg(floor(new(big.Rat).Neg(x))), nil }},
	"gcd":   {maxExpression, gcd},
	"lcm":   {maxExpression, lcm},
	"max": {maxExpression, func(x, y *big.Rat) (*big.Rat, error) {
		if x.Cmp(y) < 0 {
			x = y
		}
		return x, nil
	}},
	"min": {maxExpression, func(x, y *big.Rat) (*big.Rat, error) {
		if x.Cmp(y) > 0 {
			x = y
		}
		return x, nil
	}},
}

// floor returns the largest integer that is at most x.
func floor(x *big.Rat) *big.Rat {
	return new(big.Rat).SetInt(new(big.Int).Div(x.Num(), x.Denom())) // Euclidean: the denominator is positive
}

func gcd(x, y *big.Rat) (*big.Rat, error) {
	if !x.IsInt() || !y.IsInt() {
		return nil, errors.New("gcd and lcm take integers")
	}
	a, b := new(big.Int).Abs(x.Num()), new(big.Int).Abs(y.Num())
	return new(big.Rat).SetInt(a.GCD(nil, nil, a, b)), nil
}

func lcm(x, y *big.Rat) (*big.Rat, error) {
	d, err := gcd(x, y)
	if err != nil || d.Sign() == 0 {
		return d, err
	}
	product := new(big.Rat).Mul(x, y)
	return bounded(product.Abs(product.Quo(product, d)))
}

// apply evaluates x op y.
func apply(op string, x, y *big.Rat) (*big.Rat, error) {
	out := new(big.Rat)
	switch op {
	case "+":
		return bounded(out.Add(x, y))
	case "-":
		return bounded(out.Sub(x, y))
	case "*":
		return bounded(out.Mul(x, y))
	}
	if y.Sign() == 0 {
		return nil, errors.New("division by zero")
	}
	out.Quo(x, y)
	switch op {
	case "/":
		return bounded(out)
	case "//":
		return bounded(floor(out))
	default: // the sign of x % y is the sign of y, as in Python
		return bounded(out.Sub(x, out.Mul(floor(out), y)))
	}
}

// raise evaluates x ** y for an integer y.
func raise(x, y *big.Rat) (*big.Rat, error) {
	switch {
	case !y.IsInt():
		return nil, errors.New("the exponent of ** must be an integer")
	case x.Sign() == 0 && y.Sign() < 0:
		return nil, errors.New("division by zero")
	case x.IsInt() && x.Num().CmpAbs(big.NewInt(1)) <= 0: // 0, 1 and -1 have powers of any exponent
		if x.Sign() < 0 && y.Num().Bit(0) == 0 || y.Sign() == 0 {
			return big.NewRat(1, 1), nil
		}
		return x, nil
	case y.Num().BitLen() > 16 || int(new(big.Int).Abs(y.Num()).Int64())*(max(x.Num().BitLen(), x.Denom().BitLen())-1) > maxBits:
		return nil, errTooLarge
	}
	n := new(big.Int).Abs(y.Num())
	num, denom := new(big.Int).Exp(x.Num(), n, nil), new(big.Int).Exp(x.Denom(), n, nil)
	if y.Sign() < 0 {
		num, denom = denom, num
	}
	return bounded(new(big.Rat).SetFrac(num, denom))
}

var errTooLarge = fmt.Errorf("the result is too large: numbers have at most %d bits", maxBits)

// bounded returns x unless it is too large.
func bounded(x *big.Rat) (*big.Rat, error) {
	if x.Num().BitLen() > maxBits || x.Denom().BitLen() > maxBits {
		return nil, errTooLarge
	}
	return x, nil
}
