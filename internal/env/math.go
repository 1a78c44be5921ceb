package env

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"

	"temper/internal/chat"
	"temper/internal/reward"
	"temper/internal/rl"
)

// Rates of the mistakes of the math teacher. RL has to repair programs that compute
// something else, broken programs, and guesses.
const (
	// MathSlip is the share of dialogues whose program computes something else.
	MathSlip = 0.4
	// MathBroken is the share of calls that fail; the teacher then retries.
	MathBroken = 0.20
	// MathGuess is the share of dialogues that answer without a call.
	MathGuess = 0.05
)

const mathMaxLevel = 3

// Math has problems whose answers are formulas. They come from files of the user or
// are generated: powers modulo a number and sums of digits (level 1), sums of
// fractions (2), irrational roots of polynomials (3). There is no fixture; the tool
// only computes. An answer may be written in any equal way.
type Math struct{}

var _ Checker = Math{}

// Name implements Environment.
func (Math) Name() string { return "math" }

// CheckLevel implements Environment.
func (Math) CheckLevel(level int) error { return checkLevel("math", level, mathMaxLevel) }

// Check implements Checker.
func (Math) Check(p rl.Problem, answer string) Verdict {
	equal, decided := reward.Exact(answer, p.Answer)
	switch {
	case !decided:
		return Open
	case equal:
		return Right
	default:
		return Wrong
	}
}

// Verify implements Environment.
func (m Math) Verify(p rl.Problem, answer string) bool { return m.Check(p, answer) == Right }

// Problems implements Environment.
func (m Math) Problems(seed uint64, split Split, level, n int) ([]rl.Problem, error) {
	if err := m.CheckLevel(level); err != nil {
		return nil, err
	}
	rng := rl.Rand(rl.Seed(seed, "math/"+string(split), uint64(level)))
	return generate(rng, split, n, func(rng *rand.Rand) rl.Problem {
		q := drawQuestion(rng, level)
		return q.problem(level)
	})
}

// question is a problem with the programs of its teacher.
type question struct {
	prompt, truth string
	// right and wrong are programs that print a number; wrong computes something else.
	right, wrong program
	broken       func(code string) brokenCall
	// answer turns what a program printed into the answer.
	answer func(printed string) string
}

// program is Python code with its output.
type program struct{ code, prints string }

func (q *question) problem(level int) rl.Problem {
	return rl.Problem{Env: Math{}.Name(), Level: level, Prompt: q.prompt, Answer: q.truth}
}

func drawQuestion(rng *rand.Rand, level int) question {
	switch {
	case level == 2:
		return fractions(rng)
	case level == 3:
		return quadratic(rng)
	case rng.IntN(2) == 0:
		return modular(rng)
	default:
		return digits(rng)
	}
}

// between draws from low to high, both included.
func between(rng *rand.Rand, low, high int64) int64 { return low + rng.Int64N(high-low+1) }

func same(s string) string { return s }

// unclosed drops the last parenthesis of a program.
func unclosed(code string) brokenCall {
	return brokenCall{strings.TrimSuffix(code, ")"), raised("SyntaxError", "'(' was never closed")}
}

// modular is a power modulo a number; the slip is a product.
func modular(rng *rand.Rand) question {
	b, e, m := between(rng, 2, 99), between(rng, 3, 40), between(rng, 11, 199)
	truth := new(big.Int).Exp(big.NewInt(b), big.NewInt(e), big.NewInt(m)).String()
	return question{
		prompt: fmt.Sprintf("%d^%d mod %d?", b, e, m), truth: truth,
		right:  program{fmt.Sprintf("print(pow(%d,%d,%d))", b, e, m), truth},
		wrong:  program{fmt.Sprintf("print(%d*%d%%%d)", b, e, m), fmt.Sprint(b * e % m)},
		broken: unclosed, answer: same,
	}
}

// digits is the sum of the digits of a power; the slip is their number.
func digits(rng *rand.Rand) question {
	b, e := between(rng, 2, 99), between(rng, 3, 60)
	power := new(big.Int).Exp(big.NewInt(b), big.NewInt(e), nil).String()
	sum := 0
	for _, d := range power {
		sum += int(d - '0')
	}
	return question{
		prompt: fmt.Sprintf("digit sum of %d^%d?", b, e), truth: fmt.Sprint(sum),
		right:  program{fmt.Sprintf("print(sum(map(int,str(%d**%d))))", b, e), fmt.Sprint(sum)},
		wrong:  program{fmt.Sprintf("print(len(str(%d**%d)))", b, e), fmt.Sprint(len(power))},
		broken: unclosed, answer: same,
	}
}

// fractions is a sum of two; the slip adds numerators and denominators.
func fractions(rng *rand.Rand) question {
	b, d := between(rng, 2, 60), between(rng, 2, 60)
	a, c := between(rng, 1, b-1), between(rng, 1, d-1)
	const load = "from fractions import Fraction as F\n"
	truth := new(big.Rat).Add(big.NewRat(a, b), big.NewRat(c, d)).RatString()
	return question{
		prompt: fmt.Sprintf("%d/%d+%d/%d?", a, b, c, d), truth: truth,
		right: program{load + fmt.Sprintf("print(F(%d,%d)+F(%d,%d))", a, b, c, d), truth},
		wrong: program{load + fmt.Sprintf("print(F(%d,%d))", a+c, b+d), big.NewRat(a+c, b+d).RatString()},
		broken: func(code string) brokenCall {
			return brokenCall{strings.TrimPrefix(code, load), raised("NameError", "name 'F' is not defined")}
		},
		answer: same,
	}
}

// quadratic is a root of x^2-2px+p^2-k, where k is no square: p+sqrt(k) or
// p-sqrt(k). The teacher computes the discriminant and leaves the root as the
// formula gives it; the slip forgets the 4.
func quadratic(rng *rand.Rand) question {
	p, k := between(rng, 1, 20), between(rng, 2, 200)
	if rng.IntN(2) == 0 {
		p = -p
	}
	for isSquare(k) {
		k = between(rng, 2, 200)
	}
	which, sign := "larger", "+"
	if rng.IntN(2) == 0 {
		which, sign = "smaller", "-"
	}
	b, c := -2*p, p*p-k
	return question{
		prompt: fmt.Sprintf("%s root of x^2%+dx%+d?", which, b, c), truth: fmt.Sprintf("%d%s%s", p, sign, surd(k)),
		right:  program{fmt.Sprintf("print((%d)**2-4*(%d))", b, c), fmt.Sprint(b*b - 4*c)},
		wrong:  program{fmt.Sprintf("print((%d)**2-(%d))", b, c), fmt.Sprint(b*b - c)},
		broken: unclosed,
		answer: func(printed string) string { return fmt.Sprintf(`(%d%s\sqrt{%s})/2`, -b, sign, printed) },
	}
}

func isSquare(k int64) bool {
	r := new(big.Int).Sqrt(big.NewInt(k)).Int64()
	return r*r == k
}

// surd is the square root of k in lowest terms.
func surd(k int64) string {
	outside := int64(1)
	for f := int64(2); f*f <= k; {
		if k%(f*f) != 0 {
			f++
			continue
		}
		k /= f * f
		outside *= f
	}
	if outside == 1 {
		return fmt.Sprintf(`\sqrt{%d}`, k)
	}
	return fmt.Sprintf(`%d\sqrt{%d}`, outside, k)
}

// Dialogue implements Environment.
func (m Math) Dialogue(seed uint64, i, level int) (chat.Dialogue, error) {
	if err := m.CheckLevel(level); err != nil {
		return chat.Dialogue{}, err
	}
	rng := rl.Rand(rl.Seed(seed, "math/dialogue", uint64(level), uint64(i)))
	q := drawQuestion(rng, level)
	for p := q.problem(level); splitOf(contentHash(&p)) != Train; p = q.problem(level) {
		q = drawQuestion(rng, level)
	}
	t := newTeacher(rng, q.prompt)
	if t.chance(MathGuess) {
		t.answer(q.answer(fmt.Sprint(between(rng, 1, 199))))
		return chat.Dialogue{Messages: t.messages}, nil
	}
	said := q.right
	if t.chance(MathSlip) {
		said = q.wrong
	}
	t.try(said.code, said.prints, []brokenCall{q.broken(said.code)}, MathBroken)
	t.answer(q.answer(said.prints))
	return chat.Dialogue{Messages: t.messages}, nil
}
