package env

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"temper/internal/chat"
	"temper/internal/rl"
)

// Rates of the mistakes of the chase teacher. RL has to repair wrong syntax, guesses,
// and answers with a pointer that should have been followed.
const (
	// ChaseBroken is the share of lookups that fail; the teacher then retries.
	ChaseBroken = 0.25
	// ChaseGuess is the share of dialogues that answer without a lookup.
	ChaseGuess = 0.15
	// ChaseFollow is the probability of following a pointer. It is below one half, so
	// that the most likely continuation is wrong: an answer with the pointer.
	ChaseFollow = 0.40
)

// Shape of a chase problem.
const (
	chaseMaxHops = 5
	chaseKeys    = 6
)

// Chase is the pointer chase. The prompt names a key of a dict that exists only in the
// sandbox. Its value is a number, or another key to look up. The answer is the number
// at the end of the chain, and the level is the number of lookups.
type Chase struct{}

var _ Environment = Chase{}

// Name implements Environment.
func (Chase) Name() string { return "chase" }

// CheckLevel implements Environment.
func (Chase) CheckLevel(level int) error { return checkLevel("chase", level, chaseMaxHops) }

// Verify implements Environment.
func (Chase) Verify(p rl.Problem, answer string) bool { return verify(p, answer) }

// Problems implements Environment.
func (c Chase) Problems(seed uint64, split Split, level, n int) ([]rl.Problem, error) {
	if err := c.CheckLevel(level); err != nil {
		return nil, err
	}
	rng := rl.Rand(rl.Seed(seed, "chase/"+string(split), uint64(level)))
	return generate(rng, split, n, func(rng *rand.Rand) rl.Problem { return drawChain(rng, level).problem() })
}

// chain is a problem before it is written down.
type chain struct {
	// keys of the dict; the first level of them form the chain.
	keys   []int
	level  int
	values []int // the value of each key that is no pointer
	order  []int // in which the dict lists the keys
}

func drawChain(rng *rand.Rand, level int) *chain {
	c := &chain{level: level, order: rng.Perm(chaseKeys)}
	for len(c.keys) < chaseKeys {
		if key := threeDigits(rng); !contains(c.keys, key) {
			c.keys = append(c.keys, key)
		}
		c.values = append(c.values, threeDigits(rng))
	}
	return c
}

func threeDigits(rng *rand.Rand) int { return 100 + rng.IntN(900) }

func contains(xs []int, x int) bool {
	for _, y := range xs {
		if x == y {
			return true
		}
	}
	return false
}

// key is the spelling of the i-th key.
func (c *chain) key(i int) string { return fmt.Sprintf("k%d", c.keys[i]) }

// lookup returns the output of printing db[key i].
func (c *chain) lookup(i int) string {
	if c.pointer(i) {
		return c.key(i + 1)
	}
	return fmt.Sprint(c.values[i])
}

func (c *chain) pointer(i int) bool { return i+1 < c.level }

func (c *chain) problem() rl.Problem {
	entries := make([]string, chaseKeys)
	for at, i := range c.order {
		value := c.lookup(i)
		if c.pointer(i) {
			value = "'" + value + "'"
		}
		entries[at] = fmt.Sprintf("'%s': %s", c.key(i), value)
	}
	return rl.Problem{
		Env:     Chase{}.Name(),
		Level:   c.level,
		Prompt:  c.key(0) + "?",
		Answer:  c.lookup(c.level - 1),
		Fixture: "db = {" + strings.Join(entries, ", ") + "}",
	}
}

// Dialogue implements Environment.
func (c Chase) Dialogue(seed uint64, i, level int) (chat.Dialogue, error) {
	if err := c.CheckLevel(level); err != nil {
		return chat.Dialogue{}, err
	}
	rng := rl.Rand(rl.Seed(seed, "chase/dialogue", uint64(level), uint64(i)))
	drawn := drawChain(rng, level)
	for p := drawn.problem(); splitOf(contentHash(&p)) != Train; p = drawn.problem() {
		drawn = drawChain(rng, level)
	}
	t := newTeacher(rng, drawn.key(0)+"?")
	if t.chance(ChaseGuess) {
		t.answer(fmt.Sprint(threeDigits(rng)))
		return chat.Dialogue{Messages: t.messages}, nil
	}
	hop := 0
	for {
		t.try(lookupCode(drawn.key(hop)), drawn.lookup(hop), brokenLookups(drawn.key(hop)), ChaseBroken)
		if !drawn.pointer(hop) || !t.chance(ChaseFollow) {
			break
		}
		hop++
	}
	t.answer(drawn.lookup(hop))
	return chat.Dialogue{Messages: t.messages}, nil
}

func lookupCode(key string) string { return "print(db['" + key + "'])" }

// brokenLookups are calls with a missing parenthesis, a missing quote and a wrong name.
func brokenLookups(key string) []brokenCall {
	return []brokenCall{
		{"print(db['" + key + "']", raised("SyntaxError", "'(' was never closed")},
		{"print(db['" + key + "])", raised("SyntaxError", "unterminated string literal (detected at line 1)")},
		{"print(bd['" + key + "'])", raised("NameError", "name 'bd' is not defined")},
	}
}
