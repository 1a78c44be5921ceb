package reward

import (
	"regexp"
	"strings"

	"temper/internal/answer"
)

// maxResponse bounds what is searched for answers, from its end.
const maxResponse = 64 << 10

// tail is the part of a response that can have the answer.
func tail(response string) string {
	if i := strings.LastIndex(response, "</think>"); i >= 0 {
		response = response[i+len("</think>"):]
	}
	if len(response) > maxResponse {
		response = strings.ToValidUTF8(response[len(response)-maxResponse:], "")
	}
	if at := strings.LastIndex(response, "<|im_"); at > 0 && strings.TrimSpace(response[:at]) != "" {
		response = response[:at]
	}
	return response
}

// Stated returns what a response states as its answer: the content of its last box, or what
// follows the last of some phrases. It is empty where there is neither.
func Stated(response string) string {
	response = tail(response)
	if box, _ := lastBoxes(response); len(box) > 0 {
		return box[len(box)-1]
	}
	said, _ := afterPhrase(response)
	return said
}

// anywhere finds the answer of a response without a fixed form: the last boxes, else what
// follows the last of some phrases, else the whole text where it is a formula, else the last
// formula or number. "The final answer is" counts more than a box before it.
func anywhere(response string) string {
	response = tail(response)
	boxes, at := lastBoxes(response)
	if i := strings.LastIndex(response, "final answer is"); i > at && i >= 0 {
		boxes = nil
	}
	if len(boxes) > 0 {
		return strings.Join(boxes, ", ")
	}
	if said, ok := afterPhrase(response); ok {
		return refined(said)
	}
	if text := strings.TrimSpace(response); len(text) <= maxWhole && !isProse(text) && formulaAt(text) <= 0 && answer.Computable(text) {
		return text
	}
	return lastThing(response)
}

// maxWhole is the longest response that may be nothing but a formula.
const maxWhole = 400

// joint matches the text between two boxes that are one answer.
var joint = regexp.MustCompile(`^[\s$,;.]*(?:[a-z]+\s+(?:and|or)\s)?(?:\\q?quad|\\[()\[\]]|\\(?:text|textbf|mathrm)\{[^{}]*\}|\b(?:and|or)\b|[a-z]_?\{?[0-9]?\}?\s*=|[\s$,;])*$`)

// maxJoint is the longest text between two such boxes, and maxBoxes how many there may be.
const (
	maxJoint = 60
	maxBoxes = 64
)

// lastBoxes returns the contents of the last complete box and of those before it that
// only belong together with it, such as \boxed{1} and \boxed{2}, and where the last one
// begins.
func lastBoxes(text string) (contents []string, at int) {
	inside, at, ok := lastBoxIn(text)
	if !ok {
		return nil, -1
	}
	contents = []string{inside}
	begin := at
	for len(contents) < maxBoxes {
		before, start, ok := lastBoxIn(text[:begin])
		if !ok {
			break
		}
		_, after, _ := strings.Cut(text[start:begin], "{")
		content, closed := answer.CutGroup(after)
		if !closed {
			break
		}
		gap := after[len(content)+1:]
		if len(gap) > maxJoint || !joint.MatchString(gap) {
			break
		}
		contents, begin = append([]string{before}, contents...), start
	}
	return contents, at
}

// maxOpen is how many boxes that nothing closes are passed over.
const maxOpen = 256

// lastBoxIn returns the content of the last complete box and where it begins, also of one
// that only a blank or nothing ends: \boxed 5.
func lastBoxIn(text string) (inside string, begin int, ok bool) {
	for range maxOpen {
		at, mark := -1, ""
		for _, m := range [...]string{`\boxed`, `\fbox`} {
			if i := strings.LastIndex(text, m); i > at {
				at, mark = i, m
			}
		}
		if at < 0 {
			return "", 0, false
		}
		rest := strings.TrimLeft(text[at+len(mark):], " ")
		if group, ok := strings.CutPrefix(rest, "{"); ok {
			if inside, closed := answer.CutGroup(group); closed {
				return strings.TrimSpace(inside), at, true
			}
		} else {
			if end := strings.IndexAny(rest, " \n$"); end >= 0 {
				rest = rest[:end]
			}
			return strings.TrimSpace(rest), at, strings.TrimSpace(rest) != ""
		}
		text = text[:at]
	}
	return "", 0, false
}

// afterPhrase returns what follows "the answer is" and the like, up to the end of the
// sentence.
func afterPhrase(text string) (string, bool) {
	low := strings.ToLower(text)
	if len(low) != len(text) { // letters whose small form has another length
		return "", false
	}
	at := -1
	for _, phrase := range [...]string{"answer:", "answer is:", "answer is", "answers are", "answer =", "####"} {
		if i := strings.LastIndex(low, phrase); i >= 0 {
			at = max(at, i+len(phrase))
		}
	}
	if at < 0 {
		return "", false
	}
	rest := strings.TrimSpace(text[at:])
	rest = strings.TrimSpace(strings.TrimPrefix(rest, ":"))
	if end := strings.IndexByte(rest, '\n'); end >= 0 {
		rest = rest[:end]
	}
	if end := strings.Index(rest, ". "); end >= 0 {
		rest = rest[:end]
	}
	return strings.TrimSpace(strings.Trim(rest, "* ")), true
}

var (
	// command is a command with the text that it holds as words.
	command = regexp.MustCompile(`\\(?:begin|end)\s*\{[a-zA-Z]*\}(?:\{[lcr|]*\})?|\\(?:text|textbf|textnormal|mathrm|mbox|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+`)
	// words are letters side by side.
	words = regexp.MustCompile(`[A-Za-z]{3,}`)
)

// isProse reports whether a text has a word outside of commands that names no function.
func isProse(text string) bool {
	for _, w := range words.FindAllString(command.ReplaceAllString(text, " "), -1) {
		switch w {
		case "sin", "cos", "tan", "cot", "sec", "csc", "log", "exp", "sqrt", "arcsin", "arccos", "arctan", "abs", "and", "inf":
		default:
			return true
		}
	}
	return false
}

// formulaAt is where the first mark of a formula is; -1 without one.
func formulaAt(text string) int {
	if at := formulaMark.FindStringIndex(text); at != nil {
		return at[0]
	}
	return -1
}

var formulaMark = regexp.MustCompile(`\$|\\\(|\\\[`)

// isSentence reports whether a text between dollar signs is none: the signs are currency.
func isSentence(text string) bool { return isProse(text) && strings.Contains(text, " ") }

// refined takes the formula or number out of a sentence.
func refined(said string) string {
	if !isProse(said) {
		return said
	}
	if inner := lastThing(said); inner != "" {
		return inner
	}
	return said
}

// asNumber is a number in a text, with separated thousands, as a fraction or in percent.
var asNumber = regexp.MustCompile(`(?:^|[^\w.])([-+]?[$€£]?(?:[0-9]{1,3}(?:[, ][0-9]{3})+|[0-9]+)?(?:[.,]?[0-9]+)(?:\s*/\s*[0-9]+)?(?:\s*(?:\\?%|percent\b|pct\b))?)`)

// lastThing returns the last formula between dollar signs or \( and \) or \[ and \], or the
// last number, whichever comes later.
func lastThing(text string) string {
	formula, end := lastFormula(text)
	if found := asNumber.FindAllStringSubmatch(text[end:], -1); len(found) > 0 {
		return strings.TrimSpace(strings.TrimLeft(found[len(found)-1][1], "$€£"))
	}
	return formula
}

// lastFormula returns the last formula and where it ends; 0 where there is none.
func lastFormula(text string) (formula string, end int) {
	for _, marks := range [...][2]string{{`\[`, `\]`}, {`\(`, `\)`}} {
		start := strings.LastIndex(text, marks[0])
		if start < 0 {
			continue
		}
		inside, _, closed := strings.Cut(text[start+2:], marks[1])
		if stop := start + 2 + len(inside) + 2; closed && stop > end && !isSentence(inside) {
			formula, end = strings.TrimSpace(inside), stop
		}
	}
	var dollars []int // those that are no currency by an escape; two of them are one mark
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case text[i] == '$':
			dollars = append(dollars, i)
			if i+1 < len(text) && text[i+1] == '$' {
				i++
			}
		}
	}
	if len(dollars) < 2 {
		return formula, end
	}
	first, last := dollars[len(dollars)-2], dollars[len(dollars)-1]
	inside := strings.Trim(text[first:last], "$ \n")
	if stop := last + len(text[last:]) - len(strings.TrimLeft(text[last:], "$")); stop > end && inside != "" && !isSentence(inside) {
		return strings.TrimSpace(inside), stop
	}
	return formula, end
}
