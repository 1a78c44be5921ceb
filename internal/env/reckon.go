package env

import (
	"fmt"
	"math/big"
	"math/rand/v2"

	"temper/internal/chat"
	"temper/internal/rl"
)

// Rates of the mistakes of the reckon teacher. RL has to learn which program a question
// asks for, to write it without slips, and to look at what it printed.
const (
	// ReckonWrong is the share of programs that compute something near what was asked.
	ReckonWrong = 0.5
	// ReckonBroken is the share of calls that fail; the teacher then retries.
	ReckonBroken = 0.25
	// ReckonTrust is the share of outputs that betray a wrong program and are answered all
	// the same.
	ReckonTrust = 0.6
)

const reckonMaxLevel = 3

// Reckon is arithmetic that is asked in words and is beyond mental arithmetic. The level is
// the number of obstacles between the question and its program: at 1 there is none, one
// call answers it; at 2 the question lies in the sandbox, and a first call has to print it;
// at 3 the obvious program may print a wrong result, since the sandbox may hold its numbers
// as texts, and a second program has to correct it.
type Reckon struct{}

var _ Environment = Reckon{}

// Name implements Environment.
func (Reckon) Name() string { return "reckon" }

// CheckLevel implements Environment.
func (Reckon) CheckLevel(level int) error { return checkLevel("reckon", level, reckonMaxLevel) }

// Verify implements Environment.
func (Reckon) Verify(p rl.Problem, answer string) bool { return verify(p, answer) }

// Problems implements Environment.
func (r Reckon) Problems(seed uint64, split Split, level, n int) ([]rl.Problem, error) {
	if err := r.CheckLevel(level); err != nil {
		return nil, err
	}
	rng := rl.Rand(rl.Seed(seed, "reckon/"+string(split), uint64(level)))
	return generateBy(rng, split, n, func(rng *rand.Rand) (rl.Problem, uint64) {
		q := drawReckoning(rng, level)
		return q.problem(level), q.asks()
	})
}

// reckoning is a problem before it is written down.
type reckoning struct {
	// asked is the question in words, program the code that answers it.
	asked   string
	program snippet
	// wrong are programs near it.
	wrong []snippet
	// setup defines what the programs need beyond Python; number is the index of a question
	// in the sandbox.
	setup  string
	number int
	// betrays is true if the first program, naive, prints a result that is visibly wrong.
	betrays bool
	naive   snippet
}

// snippet is code with what it prints.
type snippet struct{ code, prints string }

func drawReckoning(rng *rand.Rand, level int) reckoning {
	if level == 3 {
		return drawTexts(rng)
	}
	templates := []func(*rand.Rand) reckoning{drawBoxes, drawPower, drawRange, drawGCD, drawCount}
	q := templates[rng.IntN(len(templates))](rng)
	q.number = 100 + rng.IntN(900)
	return q
}

// asks returns a hash of the question and its subject. It decides the split, so that a
// question is held out both in the sandbox of one level and in the prompt of another.
func (q reckoning) asks() uint64 {
	return contentHash(&rl.Problem{Env: Reckon{}.Name(), Prompt: q.asked, Fixture: q.setup})
}

func (q reckoning) problem(level int) rl.Problem {
	p := rl.Problem{Env: Reckon{}.Name(), Level: level, Prompt: q.asked, Answer: q.program.prints, Fixture: q.setup}
	if level == 2 {
		p.Prompt = fmt.Sprintf("task %d?", q.number)
		p.Fixture = q.setup + "\n" + fmt.Sprintf("task = %q", q.asked)
	}
	return p
}

// reckonSetup is the code that the sandbox runs first.
const reckonSetup = "from math import gcd"

func printing(code string, value int64) snippet {
	return snippet{"print(" + code + ")", fmt.Sprint(value)}
}

// drawBoxes is a sum in words.
func drawBoxes(rng *rand.Rand) reckoning {
	a, b, c := int64(12+rng.IntN(88)), int64(12+rng.IntN(88)), int64(12+rng.IntN(988))
	return reckoning{
		asked:   fmt.Sprintf("%d boxes of %d and %d more?", a, b, c),
		program: printing(fmt.Sprintf("%d*%d+%d", a, b, c), a*b+c),
		wrong:   []snippet{printing(fmt.Sprintf("%d*(%d+%d)", a, b, c), a*(b+c)), printing(fmt.Sprintf("%d+%d+%d", a, b, c), a+b+c)},
		setup:   reckonSetup,
	}
}

// drawPower is a power modulo m.
func drawPower(rng *rand.Rand) reckoning {
	a, b, m := int64(11+rng.IntN(89)), int64(11+rng.IntN(89)), int64(101+rng.IntN(899))
	power := new(big.Int).Exp(big.NewInt(a), big.NewInt(b), big.NewInt(m)).Int64()
	return reckoning{
		asked:   fmt.Sprintf("%d to the %d mod %d?", a, b, m),
		program: printing(fmt.Sprintf("pow(%d,%d,%d)", a, b, m), power),
		wrong:   []snippet{printing(fmt.Sprintf("%d*%d%%%d", a, b, m), a*b%m), printing(fmt.Sprintf("pow(%d,%d)", a, 2), a*a)},
		setup:   reckonSetup,
	}
}

// drawRange is a sum of squares over a range with both ends.
func drawRange(rng *rand.Rand) reckoning {
	from := int64(11 + rng.IntN(89))
	to := from + int64(11+rng.IntN(89))
	squares := func(from, to int64) (sum int64) {
		for i := from; i <= to; i++ {
			sum += i * i
		}
		return sum
	}
	code := func(ends string) string { return "sum(i*i for i in range(" + ends + "))" }
	return reckoning{
		asked:   fmt.Sprintf("squares %d to %d?", from, to),
		program: printing(code(fmt.Sprintf("%d,%d+1", from, to)), squares(from, to)),
		wrong:   []snippet{printing(code(fmt.Sprintf("%d,%d", from, to)), squares(from, to-1))},
		setup:   reckonSetup,
	}
}

// drawGCD is a greatest common divisor of two numbers that have one. They have three digits
// like all others: what a small network still got wrong after RL was copying longer ones.
func drawGCD(rng *rand.Rand) reckoning {
	d := 2 + rng.IntN(28)
	multiple := func() int64 {
		least, most := (100+d-1)/d, 999/d
		return int64(d * (least + rng.IntN(most-least+1)))
	}
	a, b := multiple(), multiple()
	divisor := new(big.Int).GCD(nil, nil, big.NewInt(a), big.NewInt(b)).Int64()
	return reckoning{
		asked:   fmt.Sprintf("gcd of %d and %d?", a, b),
		program: printing(fmt.Sprintf("gcd(%d,%d)", a, b), divisor),
		wrong:   []snippet{printing(fmt.Sprintf("max(%d,%d)", a, b), max(a, b)), printing(fmt.Sprintf("%d%%%d", a, b), a%b)},
		setup:   reckonSetup,
	}
}

// drawCount counts numbers up to n that one number divides and another does not.
func drawCount(rng *rand.Rand) reckoning {
	n, a, b := int64(101+rng.IntN(899)), int64(2+rng.IntN(4)), int64(6+rng.IntN(4))
	count := func(to int64, without bool) (out int64) {
		for i := int64(1); i <= to; i++ {
			if i%a == 0 && (!without || i%b > 0) {
				out++
			}
		}
		return out
	}
	return reckoning{
		asked:   fmt.Sprintf("up to %d by %d not %d?", n, a, b),
		program: printing(fmt.Sprintf("sum(i%%%d==0 and i%%%d>0 for i in range(1,%d+1))", a, b, n), count(n, true)),
		wrong:   []snippet{printing(fmt.Sprintf("%d//%d", n, a), count(n, false))},
		setup:   reckonSetup,
	}
}

// drawTexts asks for numbers that the sandbox holds, in half of the problems as texts: then
// the obvious program joins them, and its output has more digits than any sum.
func drawTexts(rng *rand.Rand) reckoning {
	a, b := int64(threeDigits(rng)), int64(threeDigits(rng))
	q := reckoning{
		asked: "a plus b?", setup: fmt.Sprintf("a, b = %d, %d", a, b),
		program: snippet{"print(int(a)+int(b))", fmt.Sprint(a + b)},
		naive:   snippet{"print(a+b)", fmt.Sprint(a + b)},
		wrong:   []snippet{{"print(a)", fmt.Sprint(a)}},
	}
	if rng.IntN(2) == 0 {
		q.asked, q.program, q.naive = "b times 3?", snippet{"print(int(b)*3)", fmt.Sprint(3 * b)}, snippet{"print(b*3)", fmt.Sprint(3 * b)}
		q.wrong = []snippet{{"print(b)", fmt.Sprint(b)}}
	}
	if q.betrays = rng.IntN(2) == 0; q.betrays {
		q.setup = fmt.Sprintf("a, b = '%d', '%d'", a, b)
		if q.naive.prints = fmt.Sprintf("%d%d", a, b); q.naive.code == "print(b*3)" {
			q.naive.prints = fmt.Sprintf("%d%d%d", b, b, b)
		}
	}
	return q
}

// Dialogue implements Environment.
func (r Reckon) Dialogue(seed uint64, i, level int) (chat.Dialogue, error) {
	if err := r.CheckLevel(level); err != nil {
		return chat.Dialogue{}, err
	}
	rng := rl.Rand(rl.Seed(seed, "reckon/dialogue", uint64(level), uint64(i)))
	q := drawReckoning(rng, level)
	for splitOf(q.asks()) != Train {
		q = drawReckoning(rng, level)
	}
	t := newTeacher(rng, q.problem(level).Prompt)
	if level == 2 {
		t.try("print(task)", q.asked, brokenCode("print(task)"), ReckonBroken)
	}
	said := q.program
	if level == 3 {
		said = q.naive
	}
	if t.chance(ReckonWrong) && (level < 3 || !q.betrays) {
		said = q.wrong[rng.IntN(len(q.wrong))]
	}
	t.try(said.code, said.prints, brokenCode(said.code), ReckonBroken)
	if level == 3 && q.betrays && !t.chance(ReckonTrust) {
		said = q.program
		t.try(said.code, said.prints, brokenCode(said.code), ReckonBroken)
	}
	t.answer(said.prints)
	return chat.Dialogue{Messages: t.messages}, nil
}

// brokenCode are calls with a missing parenthesis and a wrong name.
func brokenCode(code string) []brokenCall {
	return []brokenCall{
		{code[:len(code)-1], raised("SyntaxError", "'(' was never closed")},
		{"prnt" + code[len("print"):], raised("NameError", "name 'prnt' is not defined")},
	}
}
