package evaluate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"temper/internal/answer"
	"temper/internal/env"
	"temper/internal/reward"
	"temper/internal/rl"
)

// Mode is how the answer of a response is found and compared: a mode of package verify,
// Choice, Env, Rules or Calls.
type Mode string

// Modes that package verify does not have.
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
	if m == Choice || m == Env || m == Rules || m == Calls || slices.Contains(reward.Modes(), reward.Mode(m)) {
		return nil
	}
	return fmt.Errorf("mode is %q, want one of %s, %s, %s, %s, %s, %s, %s, %s", string(m), reward.Paper, reward.Tag, reward.Integer, reward.Released, Choice, Env, Rules, Calls)
}

// judge compares a response with the key of a problem. Errors: a key that nothing can be
// compared with.
func (m Mode) judge(p rl.Problem, response string) (reward.Verdict, error) {
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
			return reward.Verdict{}, err
		}
		if _, open := e.(env.Checker); open { // its answers are formulas
			return reward.Response(reward.Tag, response, p.Answer)
		}
		said, _ := reward.ExtractAnswer(response)
		out := reward.Verdict{Extracted: said, Correct: said != "" && e.Verify(p, said), Method: answer.Method(e.Name())}
		if !out.Correct {
			out.Reason = "the environment " + e.Name() + " says that it is wrong"
		}
		return out, nil
	default:
		return reward.Response(reward.Mode(m), response, p.Answer)
	}
}

// judgeChoice compares letters.
func judgeChoice(key, response string) (reward.Verdict, error) {
	want := letter(key)
	if want == "" {
		return reward.Verdict{}, fmt.Errorf("the key %q is no letter from A to Z", key)
	}
	out := reward.Verdict{Extracted: letter(reward.Stated(response)), Method: "choice"}
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

var (
	// choiceWrap is a command around a choice.
	choiceWrap = regexp.MustCompile(`^\\(?:text|textbf|textrm|textit|textsf|mathrm|mathbf|mathsf|mathit|bold|boldsymbol)\s*\{`)
	// choiceHead is a letter with what may stand around it.
	choiceHead = regexp.MustCompile(`^[\s([{*_$'"]*([A-Za-z])([)\]}.:*_$'"]*)`)
	// choiceMore is a second letter.
	choiceMore = regexp.MustCompile(`(?:\band\b|\bor\b|[,;/&])\s*[(\[]*(?:[A-Z]|[a-z][)\]])(?:[)\].:,;\s}]|$)`)
	// choiceWhy begins a reason or an explanation.
	choiceWhy = regexp.MustCompile(`^(?:\s*[,;]\s*\w\w|\s+\(|\s+-+\s|\s*[\x{2013}\x{2014}]|\s+(?:because|since|as|for|due|so|which|is|by|from|given|according|based|where|when|with|in|on|at|not|but|via|using|through|per|here|alone)\b|\s+i\.e\.)`)
	// choiceWords matches the text after a letter that is no word, without another letter
	// or "or".
	choiceWords = regexp.MustCompile(`^\s+\w\w`)
	choiceOr    = regexp.MustCompile(`\bor\b`)
)

// letter is the letter of a choice such as "B", "(b)", "B. the text of the choice", "B,
// because ..." or "\text{B}"; "" for none and for several. "a" and "I" before other words are
// words themselves: "a matter of taste".
func letter(text string) string {
	text = strings.TrimSpace(text)
	for wrap := choiceWrap.FindString(text); wrap != ""; wrap = choiceWrap.FindString(text) {
		text = strings.TrimSpace(text[len(wrap):])
	}
	head := choiceHead.FindStringSubmatch(text)
	if head == nil {
		return ""
	}
	rest := text[len(head[0]):]
	switch {
	case choiceMore.MatchString(rest):
		return ""
	case strings.ContainsAny(head[2], ")].:*"):
		if first, _ := utf8.DecodeRuneInString(rest); unicode.IsLetter(first) { // "e.g."
			return ""
		}
	case strings.Trim(rest, ` \}$.`) == "", choiceWhy.MatchString(rest):
	case strings.Contains("BCDEFGHJKLMNOPQRSTUVWXYZ", head[1]) && choiceWords.MatchString(rest) && !choiceOr.MatchString(rest):
	default:
		return ""
	}
	return strings.ToUpper(head[1])
}
