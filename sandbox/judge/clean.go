package judge

import (
	"regexp"
	"strings"
)

// openBoxes is how many boxes at the end of a text may be left open before it is
// taken for one without boxes.
const openBoxes = 16

// boxed returns the content of the last complete \boxed or \fbox of text, or text.
func boxed(text string) string {
	best, at := text, -1
	for _, mark := range []string{`\boxed{`, `\fbox{`} {
		i := len(text)
		for range openBoxes {
			if i = strings.LastIndex(text[:i], mark); i <= at {
				break
			}
			if content, ok := group(text[i+len(mark):]); ok {
				best, at = content, i
				break
			}
		}
	}
	return best
}

// group returns what stands before the brace that closes an open one.
func group(text string) (string, bool) {
	depth := 1
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[:i], true
			}
		}
	}
	return "", false
}

// plain holds the marks of typesetting that mean nothing or something plainer.
func plain() *strings.Replacer {
	return strings.NewReplacer(
		`{,}`, "", `\,`, "", `\!`, "", `\;`, " ", `\:`, " ", `\ `, " ", "~", " ", "\u00a0", " ", "\u2009", " ", "\u202f", " ",
		`\$`, "", "$", "", `\(`, "", `\)`, "", `\[`, "", `\]`, "", `\%`, "%", `\\`, " ",
		`\left`, "", `\right`, "", `\displaystyle`, "", `\qquad`, " ", `\quad`, " ", `\limits`, "",
		`\dfrac`, `\frac`, `\tfrac`, `\frac`, `\cfrac`, `\frac`,
		`^{\circ}`, "", `^\circ`, "", `\degree`, "", "\u00b0", "",
		"\u2212", "-", "\u2013", "-", "\u00d7", "*", "\u00b7", "*", "\u22c5", "*", "\u2217", "*", "\u00f7", "/",
		"\u03c0", `\pi `, "\u221a", `\sqrt `, "\u221e", `\infty `, "\u2264", `\le `, "\u2265", `\ge `, "\u2260", `\ne `,
		"\u222a", `\cup `, "\u00b1", `\pm `, "\u00b2", "^2", "\u00b3", "^3", "\uff0c", ",",
		"**", "^", "<=", `\le `, ">=", `\ge `, "!=", `\ne `,
	)
}

var (
	// wholeText is an answer in words.
	wholeText = regexp.MustCompile(`^\\(?:text|textbf|mathrm|mbox|operatorname)\s*\{([^{}]*)\}$`)
	// conjunction separates the elements of a list in words.
	conjunction = regexp.MustCompile(`\\(?:text|mathrm|mbox)\s*\{\s*(?:and|or)\s*\}|\b(?:and|or)\b`)
	// unit is a text beside a number.
	unit = regexp.MustCompile(`\\(?:text|textbf|mathrm|mbox)\s*\{[^{}]*\}(?:\^\{?[0-9]\}?)?`)
	// letters are two letters or more, spaces between them, parentheses around them.
	letters = regexp.MustCompile(`^\(?[A-Za-z][A-Za-z ]*[A-Za-z]\)?$`)
)

// clean reduces an answer to the formula or the words that it is about.
func clean(text string) string {
	text = strings.TrimSpace(boxed(strings.TrimSpace(text)))
	text = strings.TrimSpace(plain().Replace(text))
	text = strings.TrimSpace(strings.TrimRight(text, ".;, "))
	if m := wholeText.FindStringSubmatch(text); m != nil {
		return strings.TrimSpace(m[1])
	}
	text = conjunction.ReplaceAllString(text, " , ")
	return strings.TrimSpace(unit.ReplaceAllString(text, " "))
}

// word returns the answer as words, in one case and without parentheses around
// them; empty when it cannot be words.
func word(text string) string {
	if !letters.MatchString(text) {
		return ""
	}
	return strings.ToLower(strings.Join(strings.Fields(strings.Trim(text, "()")), " "))
}

// shortWord is the longest text of letters that may also be a product of variables.
const shortWord = 3

// onlyWord reports whether words cannot be a formula.
func onlyWord(w string) bool {
	return len(w) > shortWord && !isFunction(w) || strings.Contains(w, " ")
}
