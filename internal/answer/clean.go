package answer

import (
	"regexp"
	"strings"
	"sync"
)

// openBoxes bounds the unclosed boxes at the end of a text that boxed passes over.
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
			if content, ok := CutGroup(text[i+len(mark):]); ok {
				best, at = content, i
				break
			}
		}
	}
	return best
}

// CutGroup returns the text up to the brace that closes the group it begins in. Escaped
// braces are text.
func CutGroup(text string) (inside string, closed bool) {
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
var plain = sync.OnceValue(func() *strings.Replacer {
	return strings.NewReplacer(
		`{,}`, "", `{, }`, "", `,\! `, "", `,\!`, "", `\,`, "", `\!`, "", `\;`, " ", `\:`, " ", `\ `, " ", "~", " ", "\u00a0", " ", "\u2009", " ", "\u202f", " ",
		`\$`, "", "$", "", `\(`, "", `\)`, "", `\[`, "", `\]`, "", `\%`, "%", `\\`, " ",
		`\left`, "", `\right`, "", `\displaystyle`, "", `\mathrm{e}`, "e ", `\mathrm{i}`, "i ", `\qquad`, " ", `\quad`, " ", `\limits`, "",
		`\dfrac`, `\frac`, `\tfrac`, `\frac`, `\cfrac`, `\frac`,
		`^{\circ}`, `\degree `, `^\circ`, `\degree `, "\u00b0", `\degree `,
		"\u2212", "-", "\u2013", "-", "\u00d7", "*", "\u00b7", "*", "\u22c5", "*", "\u2217", "*", "\u00f7", "/",
		"\u03c0", `\pi `, "\u221a", `\sqrt `, "\u221e", `\infty `, "\u2264", `\le `, "\u2265", `\ge `, "\u2260", `\ne `,
		"\u222a", `\cup `, "\u00b1", `\pm `, "\u00b2", "^2", "\u00b3", "^3", "\uff0c", ",",
		"\u2248", `\approx `, "\u211d", `\Reals `, `\mathbb{R}`, `\Reals `, `\mathbf{R}`, `\Reals `, "\u20ac", "", "\u00a3", "", "\u00a5", "", "\u20b9", "",
		"\u230a", `\lfloor `, "\u230b", `\rfloor `, "\u2308", `\lceil `, "\u2309", `\rceil `,
		"**", "^", "<=", `\le `, ">=", `\ge `, "!=", `\ne `,
	)
})

var (
	// wholeText is an answer in words.
	wholeText = regexp.MustCompile(`^\\(?:text|textbf|textnormal|textrm|mathrm|mbox|operatorname)\s*\{([^{}]*)\}$`)
	// conjunction separates the elements of a list in words.
	conjunction = regexp.MustCompile(`\\(?:text|textnormal|textrm|mathrm|mbox)\s*\{\s*(?:and|or)\s*\}|\b(?:and|or)\b`)
	// squeezed is one without blanks behind a digit, before something that is no word.
	squeezed = regexp.MustCompile(`([0-9)])(?:and|or)([A-Za-z]?[-(=0-9\\_])`)
	// unit is a text beside a number.
	unit = regexp.MustCompile(`\\(?:text|textbf|textnormal|textrm|mathrm|mbox)\s*\{[^{}]*\}(?:\^\{?[0-9]\}?)?`)
	// font is a command that only changes the look of what it holds.
	font = regexp.MustCompile(`\\(?:mathbf|mathit|mathsf|mathtt|mathcal|boldsymbol|bm|textit)\s*\{([^{}]*)\}`)
	// matrix is an environment of rows and cells.
	matrix = regexp.MustCompile(`(?s)\\begin\{([pbvB]?matrix|array)\}(?:\{[lcr|]*\})?(.*?)\\end\{(?:[pbvB]?matrix|array)\}`)
	// measured is a number with a unit in words.
	measured = regexp.MustCompile(`(?i)([0-9)}.%])\s+(?:(?:square|cubic|sq\.?|cu\.?)\s+)?(?:` + units + `)(?:\s*\^\s*\{?[23]\}?)?(?:\s*(?:per|/)\s*(?:` + units + `))?$`)
	// inPercent is a percentage in words.
	inPercent = regexp.MustCompile(`(?i)([0-9)}.])\s*(?:percent|per cent|percentage|pct)$`)
	// letters are two letters or more, spaces between them, parentheses around them.
	letters = regexp.MustCompile(`^\(?[A-Za-z][A-Za-z ]*[A-Za-z]\)?$`)
)

// units are words behind a number that do not count. Single letters are none: they
// may be variables.
const units = `units?|degrees?|deg|radians?|dollars?|cents?|usd|euros?|pounds?|lbs?|ounces?|oz|` +
	`(?:kilo|centi|milli)?met(?:er|re)s?|[kcm]m|inch(?:es)?|feet|foot|ft|yards?|yd|miles?|mi|mph|km/h|` +
	`(?:kilo|milli)?grams?|kg|mg|tons?|(?:milli)?lit(?:er|re)s?|ml|gallons?|` +
	`seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?|years?|` +
	`people|students?|ways?|times|points?|apples?|books?`

// narrow turns full-width signs into ASCII, and fractions of one sign into two numbers.
func narrow(r rune) string {
	const fractions = "\u00bc1/4 \u00bd1/2 \u00be3/4 \u21531/3 \u21542/3 \u21551/5 \u21562/5 \u21573/5 \u21584/5 \u21591/6 \u215a5/6 \u215b1/8 \u215c3/8 \u215d5/8 \u215e7/8 "
	if 0xff01 <= r && r <= 0xff5e && r != 0xff0c {
		return string(r - 0xfee0)
	}
	if _, rest, ok := strings.Cut(fractions, string(r)); ok && r >= 0x80 {
		num, den, _ := strings.Cut(rest[:strings.IndexByte(rest, ' ')], "/")
		return `\frac{` + num + `}{` + den + `}`
	}
	return string(r)
}

// widened applies narrow where there is something to do.
func widened(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r >= 0x80 }) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		out.WriteString(narrow(r))
	}
	return out.String()
}

// clean reduces an answer to the formula or the words that it is about.
func clean(text string) string {
	text = widened(strings.TrimSpace(boxed(strings.TrimSpace(text))))
	if isNumeric(text) {
		return strings.TrimRight(text, ".;, ")
	}
	if len(text) > 4 && strings.HasPrefix(text, "**") && strings.HasSuffix(text, "**") {
		text = text[2 : len(text)-2] // bold in Markdown
	}
	commands := strings.IndexByte(text, '\\') >= 0
	if commands {
		text = matrix.ReplaceAllStringFunc(text, func(env string) string {
			found := matrix.FindStringSubmatch(env)
			name := `\matrix{`
			if found[1] == "vmatrix" {
				name = `\vmatrix{` // the determinant
			}
			return name + strings.ReplaceAll(found[2], `\\`, ";") + "}"
		})
		text = font.ReplaceAllString(text, "$1")
	}
	text = strings.TrimSpace(plain().Replace(text))
	text = strings.TrimSpace(strings.TrimRight(text, ".;, "))
	if m := wholeText.FindStringSubmatch(text); m != nil {
		return strings.TrimSpace(m[1])
	}
	text = squeezed.ReplaceAllString(conjunction.ReplaceAllString(text, " , "), "$1 , $2")
	if commands {
		text = unit.ReplaceAllString(text, " ")
	}
	text = strings.TrimSpace(text)
	if strings.IndexByte(text, ' ') < 0 && strings.IndexByte(text, '%') < 0 && !strings.HasSuffix(text, "t") {
		return text // no unit in words
	}
	text = inPercent.ReplaceAllString(text, "$1%")
	return strings.TrimSpace(measured.ReplaceAllString(text, "$1"))
}

// isNumeric reports whether a text holds digits and signs that mean themselves.
func isNumeric(text string) bool {
	for i := range len(text) {
		if c := text[i]; !isDigit(c) && strings.IndexByte("+-/., ()", c) < 0 {
			return false
		}
	}
	return true
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

// onlyWord reports whether words cannot be a formula. Letters that stand alone can.
func onlyWord(w string) bool {
	if len(w) <= shortWord || isFunction(w) {
		return strings.Contains(w, " ") && len(w) > shortWord
	}
	for _, part := range strings.Fields(w) {
		if len(part) > 1 {
			return true
		}
	}
	return false
}
