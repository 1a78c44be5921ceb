// Package reward owns the way from a response to its reward: finding the final
// answer, comparing it with the key, and the rule that only a finished, correct
// trajectory earns anything. Environments decide what correct means beyond that.
//
// Invariant: the reward is 1 or 0 and looks at nothing but correctness and the
// stop reason; form and tool use are never paid for.
package reward

import (
	"math/big"
	"strings"

	"temper/internal/rl"
)

const (
	openTag  = "<answer>"
	closeTag = "</answer>"
)

// maxDigits bounds the numbers that are compared as integers.
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
		// A block that was opened again starts anew.
		if i := strings.LastIndex(content, openTag); i >= 0 {
			content = content[i+len(openTag):]
		}
		answer = strings.TrimSpace(content)
		tags++
		text = after
	}
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
