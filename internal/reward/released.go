package reward

import (
	"regexp"
	"slices"
	"strings"

	"temper/internal/answer"
)

// released compares like a grader that takes answers and keys from anywhere in a text. It
// accepts what package answer accepts in a strict or a loose reading, and numbers that are
// equal up to rounding.
func released(said, key string) (Verdict, error) {
	var first Verdict
	allowed := answer.NewAllowance()
	for i, want := range wanted(key) {
		for k, got := range readings(said) {
			v, err := allowed.Equal(got, want)
			if err != nil {
				return Verdict{}, err
			}
			if v.Equal {
				return Verdict{Correct: true, Extracted: said, Method: v.Method}, nil
			}
			if i == 0 && k == 0 {
				first = Verdict{Extracted: said, Method: v.Method, Reason: v.Reason}
			}
			if allowed.Close(got, want) {
				return Verdict{Correct: true, Extracted: said, Method: MethodClose}, nil
			}
		}
	}
	return first, nil
}

// wanted returns the readings of a key: the key itself, its boxes, formula or number where
// it is a text with such marks, and a loose reading.
func wanted(key string) []string {
	if answer.CheckTruth(key) != nil {
		return []string{key} // the caller has refused it
	}
	if boxes, _ := lastBoxes(tail(key)); len(boxes) > 0 {
		return usable(readings(strings.Join(boxes, ", ")))
	}
	out := readings(key)
	if strings.ContainsAny(key, "$") || strings.Contains(key, `\(`) || strings.Contains(key, `\[`) {
		if isProse(key) {
			out = append(out, lastThing(key))
		}
	}
	return usable(out)
}

// usable are the readings by which an answer can be judged.
func usable(keys []string) []string {
	return slices.DeleteFunc(keys, func(k string) bool { return answer.CheckTruth(k) != nil })
}

// readings are a text and what it may loosely mean, where that is something else.
func readings(text string) []string {
	if loose := relaxed(text); loose != text && loose != "" {
		return []string{text, loose}
	}
	return []string{text}
}

var (
	// decimalComma is a number that can only have its point written as a comma.
	decimalComma = regexp.MustCompile(`^([-+]?(?:[0-9]+,[0-9]{1,2}|0,[0-9]+))$`)
	// subscripts and digits in them name something.
	subscripts = regexp.MustCompile(`_(?:\{[^{}]*\}|.)`)
)

// relaxed reads a comma as a point where it separates neither thousands nor elements,
// takes invisible braces away, and of |AB| = 5, V_1:V_2 = 5:3 or 5+6 = 11 the last part, as
// of a chain with a part that is no formula.
func relaxed(text string) string {
	text = strings.Trim(strings.TrimSpace(text), "$ ")
	if decimalComma.MatchString(text) {
		return strings.Replace(text, ",", ".", 1)
	}
	if inside, ok := strings.CutPrefix(text, "{"); ok {
		if group, closed := answer.CutGroup(inside); closed && len(group)+1 == len(inside) {
			return group
		}
	}
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return text
	}
	if !strings.Contains(value, "=") && !strings.ContainsAny(subscripts.ReplaceAllString(name, ""), "0123456789,<>") {
		return strings.TrimSpace(value)
	}
	if last, ok := answer.RightSide(text); ok {
		return last
	}
	if last := lastOfChain(text); last != "" && !answer.Computable(text) && answer.Computable(last) {
		return last
	}
	return text
}

// severalParts are what tells a list of equations from a chain.
var severalParts = regexp.MustCompile(`[,;]|\\text|quad|\b(?:and|or|if|for|where|with)\b`)

// lastOfChain is what stands behind the last sign of equality of a chain such as A + B = C,
// and outside of braces; empty where there is none.
func lastOfChain(text string) string {
	depth, at := 0, -1
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			depth--
		case '=':
			if depth == 0 && i > 0 && !strings.ContainsRune("<>!", rune(text[i-1])) {
				at = i
			}
		}
	}
	if at < 0 || severalParts.MatchString(text[:at]) {
		return ""
	}
	return strings.TrimSpace(text[at+1:])
}

// escaped is a command with two backslashes, as in a text that was quoted once too often.
var escaped = regexp.MustCompile(`\\\\([a-zA-Z{}])`)

// unescaped takes the second backslash away; a text with rows of cells keeps it.
func unescaped(text string) string {
	if len(text) > 4*maxResponse || !strings.Contains(text, `\\`) || strings.Contains(text, `\begin{`) {
		return text
	}
	return escaped.ReplaceAllString(text, `\$1`)
}
