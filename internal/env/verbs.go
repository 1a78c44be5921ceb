package env

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"temper/internal/chat"
	"temper/internal/rl"
)

// Rates of the mistakes of the verbs teacher. RL has to learn which operator a verb
// means.
const (
	// VerbsKnown is the share of operators that the teacher knows. It draws the others
	// from all five, so that 0.6 + 0.4/5 = 0.68 of all are right. At 0.3 the likeliest operator
	// of a verb was too faint to learn, and RL sharpened wrong ones.
	VerbsKnown = 0.6
	// VerbsBroken is the share of calls that fail; the teacher then retries.
	VerbsBroken = 0.20
	// VerbsGuess is the share of dialogues that answer without a call.
	VerbsGuess = 0.05
)

// Shape of a verbs problem.
const (
	verbsMaxOperators = 3
	verbsMinNumber    = 11
	verbsMaxNumber    = 999
)

// Verbs is the verb calculator: "930 mul 949?" asks for the product. The tool computes
// from left to right. The level is the number of operators.
type Verbs struct{}

var _ Environment = Verbs{}

// operator is one verb with its Python sign and meaning.
type operator struct {
	verb, sign string
	apply      func(a, b int64) int64
}

func operators() []operator {
	return []operator{
		{"add", "+", func(a, b int64) int64 { return a + b }},
		{"sub", "-", func(a, b int64) int64 { return a - b }},
		{"mul", "*", func(a, b int64) int64 { return a * b }},
		{"mod", "%", func(a, b int64) int64 { return (a%b + b) % b }}, // b > 0: the sign of Python
		{"xor", "^", func(a, b int64) int64 { return a ^ b }},
	}
}

// Name implements Environment.
func (Verbs) Name() string { return "verbs" }

// CheckLevel implements Environment.
func (Verbs) CheckLevel(level int) error { return checkLevel("verbs", level, verbsMaxOperators) }

// Verify implements Environment.
func (Verbs) Verify(p rl.Problem, answer string) bool { return verify(p, answer) }

// Problems implements Environment.
func (v Verbs) Problems(seed uint64, split Split, level, n int) ([]rl.Problem, error) {
	if err := v.CheckLevel(level); err != nil {
		return nil, err
	}
	rng := rl.Rand(rl.Seed(seed, "verbs/"+string(split), uint64(level)))
	return generate(rng, split, n, func(rng *rand.Rand) rl.Problem { return drawSum(rng, level).problem() })
}

// sum is a problem before it is written down: numbers with operators between them.
type sum struct {
	numbers []int64
	ops     []operator
}

func drawSum(rng *rand.Rand, level int) *sum {
	s := &sum{numbers: []int64{verbsNumber(rng)}}
	for range level {
		s.ops = append(s.ops, operators()[rng.IntN(len(operators()))])
		s.numbers = append(s.numbers, verbsNumber(rng))
	}
	return s
}

func verbsNumber(rng *rand.Rand) int64 {
	return verbsMinNumber + rng.Int64N(verbsMaxNumber-verbsMinNumber+1)
}

func (s *sum) value() int64 {
	value := s.numbers[0]
	for i, op := range s.ops {
		value = op.apply(value, s.numbers[i+1])
	}
	return value
}

// code is the Python expression, with parentheses for left to right.
func (s *sum) code() string {
	code := fmt.Sprint(s.numbers[0])
	for i, op := range s.ops {
		if i > 0 {
			code = "(" + code + ")"
		}
		code += op.sign + fmt.Sprint(s.numbers[i+1])
	}
	return code
}

func (s *sum) prompt() string {
	var b strings.Builder
	fmt.Fprint(&b, s.numbers[0])
	for i, op := range s.ops {
		fmt.Fprintf(&b, " %s %d", op.verb, s.numbers[i+1])
	}
	return b.String() + "?"
}

func (s *sum) problem() rl.Problem {
	return rl.Problem{Env: Verbs{}.Name(), Level: len(s.ops), Prompt: s.prompt(), Answer: fmt.Sprint(s.value())}
}

// Dialogue implements Environment.
func (v Verbs) Dialogue(seed uint64, i, level int) (chat.Dialogue, error) {
	if err := v.CheckLevel(level); err != nil {
		return chat.Dialogue{}, err
	}
	rng := rl.Rand(rl.Seed(seed, "verbs/dialogue", uint64(level), uint64(i)))
	drawn := drawSum(rng, level)
	for p := drawn.problem(); splitOf(contentHash(&p)) != Train; p = drawn.problem() {
		drawn = drawSum(rng, level)
	}
	t := newTeacher(rng, drawn.prompt())
	if t.chance(VerbsGuess) {
		t.answer(fmt.Sprint(verbsNumber(rng)))
		return chat.Dialogue{Messages: t.messages}, nil
	}
	said := &sum{numbers: drawn.numbers}
	for _, op := range drawn.ops {
		if !t.chance(VerbsKnown) {
			op = operators()[rng.IntN(len(operators()))]
		}
		said.ops = append(said.ops, op)
	}
	result := fmt.Sprint(said.value())
	t.try("print("+said.code()+")", result, brokenSums(said.code()), VerbsBroken)
	t.answer(result)
	return chat.Dialogue{Messages: t.messages}, nil
}

// brokenSums are calls with a missing parenthesis and a wrong name.
func brokenSums(code string) []brokenCall {
	return []brokenCall{
		{"print(" + code, raised("SyntaxError", "'(' was never closed")},
		{"prnt(" + code + ")", raised("NameError", "name 'prnt' is not defined")},
	}
}
