// Package reward owns the steps from a response to its reward: it finds the final
// answer, compares it with the key, and gives a reward only to a trajectory that is
// finished and correct. Environments decide what else counts as correct. File is a
// function of the user's that gives rewards in their place.
//
// Invariant: without such a function the reward is 1 or 0 and depends only on
// correctness and the stop reason, never on form or tool use.
package reward

import (
	"math/big"
	"regexp"
	"strings"

	formula "temper/internal/answer"
	"temper/internal/rl"
)

const (
	openTag  = "<answer>"
	closeTag = "</answer>"
)

// maxDigits bounds the numbers that are compared by value.
const maxDigits = 1000

// ExtractAnswer returns the content of the last complete <answer> block of text
// without surrounding space, and the number of such blocks.
func ExtractAnswer(text string) (answer string, tags int) {
	for {
		_, rest, found := strings.Cut(text, openTag)
		if !found {
			return answer, tags
		}
		content, after, found := strings.Cut(rest, closeTag)
		if !found {
			return answer, tags
		}
		// A block that is opened twice begins at the second tag.
		if i := strings.LastIndex(content, openTag); i >= 0 {
			content = content[i+len(openTag):]
		}
		answer = strings.TrimSpace(content)
		tags++
		text = after
	}
}

// boxes are the commands whose argument is an answer.
var boxes = []string{`\boxed{`, `\fbox{`}

// ExtractBoxed is ExtractAnswer for answers in \boxed{}. It returns the argument of
// the last box in the last complete <answer> block, "" where there is none.
func ExtractBoxed(text string) (answer string, tags int) {
	block, tags := ExtractAnswer(text)
	for block != "" {
		at, after := -1, ""
		for _, box := range boxes {
			if i := strings.LastIndex(block, box); i > at {
				at, after = i, block[i+len(box):]
			}
		}
		if at < 0 {
			break
		}
		if inside, closed := formula.CutGroup(after); closed {
			return strings.TrimSpace(inside), tags
		}
		block = block[:at]
	}
	return "", tags
}

// Equal reports whether two answers are the same text or the same integer.
func Equal(answer, gold string) bool {
	answer, gold = strings.TrimSpace(answer), strings.TrimSpace(gold)
	if answer == gold {
		return answer != ""
	}
	a, okA := integer(answer)
	g, okG := integer(gold)
	return okA && okG && a.Cmp(g) == 0
}

// number is an integer, a decimal, or a fraction of integers.
var number = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]+|/[0-9]+)?$`)

// Exact compares answers that may be formulas as far as no algebra is needed: equal
// texts, and two plain numbers by their values (0.5 is 1/2, and 0.33 is not 1/3).
// decided is false for all others.
func Exact(answer, gold string) (equal, decided bool) {
	answer, gold = strings.TrimSpace(answer), strings.TrimSpace(gold)
	if answer == gold && answer != "" {
		return true, true
	}
	a, okA := rational(answer)
	g, okG := rational(gold)
	if !okA || !okG {
		return false, false
	}
	return a.Cmp(g) == 0, true
}

func rational(s string) (*big.Rat, bool) {
	if len(s) > maxDigits || !number.MatchString(s) {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

func integer(s string) (*big.Int, bool) {
	if len(s) > maxDigits {
		return nil, false
	}
	return new(big.Int).SetString(s, 10)
}

// Score is 1 for a correct answer of a trajectory that stopped by answering, else 0.
func Score(stop rl.StopReason, correct bool) float64 {
	if stop == rl.StopAnswered && correct {
		return 1
	}
	return 0
}
