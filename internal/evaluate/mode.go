package evaluate

import (
	"fmt"
	"slices"
	"strings"

	"temper/internal/answer"
	"temper/internal/env"
	"temper/internal/reward"
	"temper/internal/rl"
	"temper/internal/verify"
)

// Mode is how the answer of a response is found and compared: a mode of package verify,
// Choice, Env, Rules or Calls.
type Mode string

// Modes beside those of package verify.
const (
	// Choice is the letter of a choice, in the last box or after a phrase such as "the
	// answer is".
	Choice Mode = "choice"
	// Env lets the environment of each problem compare what stands between <answer> and
	// </answer>.
	Env Mode = "env"
)

// Check reports why a mode is none.
func (m Mode) Check() error {
	if m == Choice || m == Env || m == Rules || m == Calls || slices.Contains(verify.Modes(), verify.Mode(m)) {
		return nil
	}
	return fmt.Errorf("mode is %q, want one of %s, %s, %s, %s, %s, %s, %s, %s", string(m), verify.Paper, verify.Tag, verify.Integer, verify.Released, Choice, Env, Rules, Calls)
}

// judge compares a response with the key of a problem. Errors: a key that nothing can be
// compared with.
func (m Mode) judge(p rl.Problem, response string) (verify.Verdict, error) {
	switch m {
	case Choice:
		return judgeChoice(p.Answer, response)
	case Rules:
		return judgeRules(p.Answer, response)
	case Calls:
		return judgeCalls(p.Answer, response)
	case Env:
		e, err := env.ByName(p.Env)
		if err != nil {
			return verify.Verdict{}, err
		}
		if _, open := e.(env.Checker); open { // its answers are formulas
			return verify.Response(verify.Tag, response, p.Answer)
		}
		said, _ := reward.ExtractAnswer(response)
		out := verify.Verdict{Extracted: said, Correct: said != "" && e.Verify(p, said), Method: answer.Method(e.Name())}
		if !out.Correct {
			out.Reason = "the environment " + e.Name() + " says that it is wrong"
		}
		return out, nil
	default:
		return verify.Response(verify.Mode(m), response, p.Answer)
	}
}

// judgeChoice compares letters.
func judgeChoice(key, response string) (verify.Verdict, error) {
	want := letter(key)
	if want == "" {
		return verify.Verdict{}, fmt.Errorf("the key %q is no letter from A to Z", key)
	}
	out := verify.Verdict{Extracted: letter(verify.Stated(response)), Method: "choice"}
	switch {
	case out.Extracted == "":
		out.Reason = "no letter was found"
	case out.Extracted != want:
		out.Reason = fmt.Sprintf("%s is not %s", out.Extracted, want)
	default:
		out.Correct = true
	}
	return out, nil
}

// letter is the letter of a choice such as "B", "(b)", "B." or "\text{B}"; "" for none.
func letter(text string) string {
	text = strings.TrimSpace(text)
	for _, wrap := range []string{`\text{`, `\mathrm{`, `\textbf{`} {
		if inside, ok := strings.CutPrefix(text, wrap); ok {
			text = strings.TrimSuffix(inside, "}")
		}
	}
	text = strings.Trim(text, "()[].:* ")
	if first, _, more := strings.Cut(text, " "); more {
		text = strings.Trim(first, "().:*")
	}
	if len(text) != 1 {
		return ""
	}
	text = strings.ToUpper(text)
	if text < "A" || text > "Z" {
		return ""
	}
	return text
}
