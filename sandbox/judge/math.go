package judge

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"temper/sandbox"
)

// Math asks whether two final answers are equal. The rules:
//   - The last \boxed of a text is the answer, otherwise the whole text. Dollar
//     signs, spacing, \left and \right, units in \text, degrees and a final full
//     stop do not count.
//   - Numbers are exact: 0.5 is 1/2, 0.33 is not 1/3. Thousands may be separated:
//     1,234 and 1{,}234; inside brackets a comma separates elements. 1 1/2 and
//     1\frac{1}{2} are three halves.
//   - A percent sign on one side only is read both ways: 50% is 0.5 and is 50.
//   - {1,2} and the bare list 1, 2 have no order and no repetition; (1,2) and [1,2]
//     have an order, and differ, as the ends of intervals do. A bare list equals a
//     tuple in the same order. "and" and "or" separate like a comma; a \pm is two values.
//   - x = 5 equals 5. Two equations are equal side by side, in either order.
//   - log is the natural logarithm; e, i and \pi are the constants. Variables are
//     real, with either sign.
//   - Words are compared without regard to case. A text that is no formula equals
//     only the same text. An empty answer equals nothing.
type Math struct {
	// ID names the job and is derived from what it is about, so that a retry is
	// the same call; Run is the key of fairness.
	ID, Run string
	Answer  string // what the model says
	Truth   string // what is right
}

// maxAnswer bounds the text of an answer; the formula in it may have maxText.
const maxAnswer = 64 << 10

//go:embed verify.py
var program string

func (q Math) judge(ctx context.Context, j *Judge) (Verdict, error) {
	if q.ID == "" {
		return Verdict{}, fmt.Errorf("%w: it has no ID", ErrInvalid)
	}
	want, err := truthOf(q.Truth)
	switch {
	case err != nil:
		return Verdict{}, fmt.Errorf("job %s: %w", q.ID, err)
	case len(q.Answer) > maxAnswer:
		return refused("the answer of %d bytes is above the limit of %d", len(q.Answer), maxAnswer), nil
	case !utf8.ValidString(q.Answer):
		return refused("the answer is not valid UTF-8"), nil
	}
	got := clean(q.Answer)
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
	return q.formulas(ctx, j, got, want)
}

// CheckTruth reports why no answer could be judged by truth: an error that is
// ErrInvalid, or nil.
func CheckTruth(truth string) error {
	_, err := truthOf(truth)
	return err
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
func (q Math) formulas(ctx context.Context, j *Judge, got, want string) (Verdict, error) {
	b, err := parse(want)
	if err != nil {
		return q.texts(got, want, "the truth is "+err.Error()), nil
	}
	a, err := parse(got)
	if err != nil {
		return q.texts(got, want, "the answer is "+err.Error()), nil
	}
	m := &matcher{seen: map[[2]string]bool{}}
	verdict := q.readings(m, a, b)
	method := MethodExact
	if verdict == open && len(m.pairs) > 0 && len(m.pairs) <= maxPairs {
		if method, err = q.ask(ctx, j, m); err != nil {
			return Verdict{}, err
		}
		verdict = q.readings(m, a, b)
	}
	switch verdict {
	case yes:
		return Verdict{Equal: true, Method: method}, nil
	case open:
		return Verdict{Method: MethodUndecided, Reason: "not decided within the limits of a job"}, nil
	default:
		return Verdict{Method: method, Reason: "the values differ"}, nil
	}
}

// readings compares a and b in each way that they may be read.
func (q Math) readings(m *matcher, a, b *node) tri {
	m.steps = 0
	verdict := m.same(a, b)
	if verdict == yes {
		return yes
	}
	if x, y := percent(a, b); x != nil {
		verdict = max(verdict, m.same(x, y))
	}
	return verdict
}

// texts compares what is no formula: sign by sign, but for the amount of space.
func (q Math) texts(got, want, reason string) Verdict {
	pack := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if pack(got) == pack(want) {
		return Verdict{Equal: true, Method: MethodText}
	}
	return Verdict{Method: MethodText, Reason: reason}
}

// ask has the sandbox compare the pairs of m and notes the answers.
func (q Math) ask(ctx context.Context, j *Judge, m *matcher) (Method, error) {
	m.known = map[[2]string]tri{}
	trees := make([][2]any, len(m.pairs))
	for i, p := range m.pairs {
		m.known[[2]string{p.a.key(), p.b.key()}] = open
		if !p.a.sendable() || !p.b.sendable() {
			return MethodUndecided, nil
		}
		trees[i] = [2]any{p.a.tree(), p.b.tree()}
	}
	stdin, err := json.Marshal(trees)
	if err != nil {
		return "", fmt.Errorf("judge job %s: %w", q.ID, err)
	}
	limits := j.cfg.Math
	res, err := j.execute(ctx, sandbox.Request{
		ID: q.ID, Run: q.Run, Code: program, Stdin: string(stdin), Profile: sandbox.ProfileNumeric, Limits: limits,
	})
	if err != nil {
		return "", err
	}
	switch res.Status {
	case sandbox.StatusOK:
		return q.note(m, res.Stdout)
	case sandbox.StatusTimeLimit:
		// The program computes and never waits. If it was stopped before it had used
		// its CPU time, the machine kept it from running.
		if limits.CPU > 0 && res.Usage.CPU < limits.CPU*9/10 {
			return "", fmt.Errorf("judge job %s: %w: %s after %v of CPU time", q.ID, ErrStarved, res.Reason, res.Usage.CPU)
		}
		return MethodUndecided, nil
	case sandbox.StatusMemoryLimit, sandbox.StatusKilled:
		return MethodUndecided, nil
	default:
		return "", fmt.Errorf("judge job %s: the verifier ended with status %s: %s", q.ID, res.Status, res.Reason)
	}
}

// note reads the line of the verifier: how it compared, and a sign for each pair.
func (q Math) note(m *matcher, stdout string) (Method, error) {
	name, signs, _ := strings.Cut(strings.TrimSuffix(stdout, "\n"), " ")
	method := Method(name)
	good := len(signs) == len(m.pairs) && strings.Trim(signs, "01?") == ""
	if !good || method != MethodSympy && method != MethodFractions && method != MethodFloat {
		return "", fmt.Errorf("judge job %s: the verifier printed %d bytes that are no verdict", q.ID, len(stdout))
	}
	for i, p := range m.pairs {
		sign := map[byte]tri{'0': no, '?': open, '1': yes}[signs[i]]
		m.known[[2]string{p.a.key(), p.b.key()}] = sign
	}
	return method, nil
}
