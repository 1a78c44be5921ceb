// Package answer finds the formula in a final answer and decides whether two of them are
// equal.
//
// The text of a model is data here. A parser of bounded depth and size parses it, and exact
// arithmetic or values at random points with hundreds of bits compare it. No part of it is
// ever executed, so no answer can state its own verdict.
//
// Invariant: a verdict is a function of the two texts, the same on every machine.
package answer

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"unicode/utf8"
)

// ErrInvalid means that no answer can be judged by a truth: it is empty or beyond a
// limit. It is not safe to retry.
var ErrInvalid = errors.New("truth is invalid")

// Method says how a verdict came about.
type Method string

// Methods.
const (
	MethodText      Method = "text"      // the texts are the same, or cannot be anything but texts
	MethodExact     Method = "exact"     // exact arithmetic
	MethodValues    Method = "values"    // values at random points, with hundreds of bits
	MethodRefused   Method = "refused"   // the answer is beyond a limit
	MethodUndecided Method = "undecided" // the answer could not be decided within the limits of a comparison
)

// Verdict is what a comparison found.
type Verdict struct {
	Equal  bool
	Method Method
	// Reason says in one line why an answer is not equal, where that is not plain.
	Reason string
}

// maxAnswer bounds the text of an answer; the formula in it may have maxText.
const maxAnswer = 64 << 10

// Equal reports whether two final answers are equal: what the model says, and what is
// right. It computes in this process with bounded time and memory, and its verdict is a
// function of the two texts. The rules:
//   - The last \boxed of a text is the answer, otherwise the whole text. Dollar
//     signs, currencies, bold type, spacing, \left and \right, units and a final full
//     stop do not count.
//   - Numbers are exact: 0.5 is 1/2, 0.33 is not 1/3. Thousands may be separated:
//     1,234 and 1{,}234 and 1 234; inside brackets a comma separates elements. 1 1/2 and
//     1\frac{1}{2} are three halves. 0.\overline{3} is a third, 101_2 is five.
//   - A percent sign on one side only is read both ways: 50% is 0.5 and is 50. The
//     sign of degrees does not count, but in \sin 30^\circ it makes radians.
//   - {1,2} and the bare list 1, 2 have no order and no repetition; (1,2) and [1,2]
//     have an order, and differ, as the ends of intervals do. A bare list equals a
//     tuple in the same order. "and" and "or" separate like a comma; a \pm is two values.
//   - x = 5 equals 5; of a chain x = 2+3 = 5 the last part counts, of x = \sqrt2 \approx
//     1.41 the part before or after the sign. (x,y) = (1,2) and x=1, y=2 equal (1,2).
//     Two equations are equal when their sides differ by one factor.
//   - x < 5 equals 5 > x and (-\infty, 5), and 1 < x \le 2 equals (1,2]. Unions of intervals
//     that touch are one interval.
//   - |x| < 5 equals (-5, 5), and |x-1| \ge 2 equals (-\infty, -1] \cup [3, \infty).
//   - 1:2 equals 2:4 and 1/2.
//   - Matrices are added and multiplied, and a determinant is its value. The terms of a
//     sequence, such as a_k under \sum_k, are known by their names alone.
//   - x^{2/3} also has the reading of real numbers, by which it is 4 at -8.
//   - log is the natural logarithm; e, i and \pi are the constants. Variables are
//     real, with either sign; those of factorials stand for whole numbers.
//   - Words are compared without regard to case. A text that is no formula equals
//     only the same text. An empty answer equals nothing.
//
// The error is ErrInvalid: no answer can be judged by this truth.
func Equal(answer, truth string) (Verdict, error) { return (&Allowance{maxWork}).Equal(answer, truth) }

// Allowance bounds the work of several comparisons for one verdict together.
type Allowance struct{ left int }

// NewAllowance returns one for a verdict.
func NewAllowance() *Allowance { return &Allowance{maxTogether} }

// borrow returns the work that one comparison may do. The caller gives back the rest.
func (a *Allowance) borrow() int {
	work := min(a.left, maxWork)
	a.left -= work
	return work
}

func (a *Allowance) giveBack(work int) { a.left += max(0, work) }

// Equal is the function Equal within the allowance.
func (a *Allowance) Equal(answer, truth string) (Verdict, error) {
	want, err := truthOf(truth)
	switch {
	case err != nil:
		return Verdict{}, err
	case len(answer) > maxAnswer:
		return refused("the answer of %d bytes is above the limit of %d", len(answer), maxAnswer), nil
	case !utf8.ValidString(answer):
		return refused("the answer is not valid UTF-8"), nil
	}
	got := clean(answer)
	switch {
	case len(got) > maxText:
		return refused("the final answer of %d bytes is above the limit of %d", len(got), maxText), nil
	case got == "":
		return refused("the answer is empty"), nil
	case got == want:
		return Verdict{Equal: true, Method: MethodText}, nil
	}
	if a, b := word(got), word(want); a != "" && a == b {
		return Verdict{Equal: true, Method: MethodText}, nil
	} else if onlyWord(a) || onlyWord(b) {
		return Verdict{Method: MethodText, Reason: "the words differ"}, nil
	}
	return formulas(got, want, a), nil
}

// CheckTruth reports why no answer could be judged by truth: an error that is
// ErrInvalid, or nil.
func CheckTruth(truth string) error {
	_, err := truthOf(truth)
	return err
}

// Computable reports whether a text is a formula that can be compared by its value: no
// words, and within the limits.
func Computable(text string) bool {
	formula, err := truthOf(text)
	if err != nil || onlyWord(word(formula)) {
		return false
	}
	_, err = parse(formula)
	return err == nil
}

// RightSide returns the last side of an equation between numbers or matrices without
// variables, such as 5+6 = 11.
func RightSide(text string) (last string, ok bool) {
	formula, err := truthOf(text)
	if err != nil {
		return "", false
	}
	n, err := parse(formula)
	if err != nil || n.op != opEqual {
		return "", false
	}
	names := map[string]bool{}
	n.variables(names, map[string]bool{}, false)
	return strings.TrimSpace(formula[strings.LastIndexByte(formula, '=')+1:]), len(names) == 0
}

// truthOf returns what a truth is about.
func truthOf(truth string) (string, error) {
	want := clean(truth)
	switch {
	case len(truth) > maxAnswer || len(want) > maxText || !utf8.ValidString(truth):
		return "", fmt.Errorf("%w: the truth is no text of up to %d bytes", ErrInvalid, maxText)
	case want == "":
		return "", fmt.Errorf("%w: the truth is empty", ErrInvalid)
	}
	return want, nil
}

func refused(format string, args ...any) Verdict {
	return Verdict{Method: MethodRefused, Reason: fmt.Sprintf(format, args...)}
}

// formulas compares two cleaned texts as formulas.
func formulas(got, want string, allowed *Allowance) Verdict {
	b, err := parse(want)
	if err != nil {
		return texts(got, want, "the truth is "+err.Error())
	}
	a, err := parse(got)
	if err != nil {
		return texts(got, want, "the answer is "+err.Error())
	}
	m := newMatcher(allowed.borrow())
	defer func() { allowed.giveBack(m.work) }()
	verdict := m.same(a, b)
	if x, y := percent(a, b); verdict != yes && x != nil {
		verdict = max(verdict, m.same(x, y))
	}
	method := MethodExact
	if m.computed {
		method = MethodValues
	}
	switch verdict {
	case yes:
		return Verdict{Equal: true, Method: method}
	case open:
		return Verdict{Method: MethodUndecided, Reason: "not decided within the limits of a comparison"}
	default:
		return Verdict{Method: method, Reason: "the values differ"}
	}
}

// texts compares what is no formula: sign by sign, but for the amount of space.
func texts(got, want, reason string) Verdict {
	pack := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if pack(got) == pack(want) {
		return Verdict{Equal: true, Method: MethodText}
	}
	return Verdict{Method: MethodText, Reason: reason}
}

// Number returns the exact value of a text that is a rational number in any form.
func Number(text string) (*big.Rat, bool) {
	if len(text) > maxAnswer || !utf8.ValidString(text) {
		return nil, false
	}
	text = clean(text)
	if len(text) > maxText {
		return nil, false
	}
	n, err := parse(text)
	if err != nil {
		return nil, false
	}
	if n.op == opEqual && isName(n.args[0]) {
		n = n.args[1]
	}
	return n.rat()
}
