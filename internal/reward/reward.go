package reward

import (
	"math/big"
	"regexp"
	"strings"

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

// ExtractBoxed is ExtractAnswer for answers in \boxed{} or \fbox{}. It returns the argument
// of the last complete box in the last complete <answer> block, "" where there is none.
func ExtractBoxed(text string) (answer string, tags int) {
	block, tags := ExtractAnswer(text)
	return strings.TrimSpace(lastBox(block)), tags
}

// lastBox is the content of the box that begins last of those that are closed, found in one
// pass: a response may open a box at every word.
func lastBox(block string) string {
	var open []struct{ begin, depth int }
	begin, end, depth := 0, 0, 0
	for i := 0; i < len(block); i++ {
		switch block[i] {
		case '\\':
			i++
		case '{':
			depth++
			if head := block[:i]; strings.HasSuffix(head, `\boxed`) || strings.HasSuffix(head, `\fbox`) {
				open = append(open, struct{ begin, depth int }{i + 1, depth})
			}
		case '}':
			if last := len(open) - 1; last >= 0 && open[last].depth == depth {
				if open[last].begin > begin {
					begin, end = open[last].begin, i
				}
				open = open[:last]
			}
			depth = max(0, depth-1)
		}
	}
	return block[begin:end]
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
