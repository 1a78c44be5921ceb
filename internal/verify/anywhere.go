package verify

import (
	"strings"

	"temper/internal/answer"
)

// maxResponse bounds what is searched for phrases, from its end.
const maxResponse = 64 << 10

// anywhere finds the answer of a response without a fixed form: the last box, else what
// follows the last of some phrases, else the last formula.
func anywhere(response string) string {
	if i := strings.LastIndex(response, "</think>"); i >= 0 {
		response = response[i+len("</think>"):]
	}
	if len(response) > maxResponse {
		response = strings.ToValidUTF8(response[len(response)-maxResponse:], "")
	}
	if answer := lastBox(response); answer != "" {
		return answer
	}
	if answer, ok := afterPhrase(response); ok {
		return answer
	}
	return lastFormula(response)
}

// lastBox returns the content of the last complete box, also of one that only a blank or
// nothing ends: \boxed 5.
func lastBox(text string) string {
	for {
		at, mark := -1, ""
		for _, m := range [...]string{`\boxed`, `\fbox`} {
			if i := strings.LastIndex(text, m); i > at {
				at, mark = i, m
			}
		}
		if at < 0 {
			return ""
		}
		rest := strings.TrimLeft(text[at+len(mark):], " ")
		if group, ok := strings.CutPrefix(rest, "{"); ok {
			if inside, closed := answer.CutGroup(group); closed {
				return strings.TrimSpace(inside)
			}
		} else {
			if end := strings.IndexAny(rest, " \n$"); end >= 0 {
				rest = rest[:end]
			}
			return strings.TrimSpace(rest)
		}
		text = text[:at]
	}
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

// lastFormula returns the content of the last pair of dollar signs or of \( and \).
func lastFormula(text string) string {
	end := strings.LastIndexByte(text, '$')
	if end > 0 {
		if start := strings.LastIndexByte(text[:end], '$'); start >= 0 && end-start > 1 {
			return strings.TrimSpace(text[start+1 : end])
		}
	}
	if start := strings.LastIndex(text, `\(`); start >= 0 {
		if inside, _, ok := strings.Cut(text[start+2:], `\)`); ok {
			return strings.TrimSpace(inside)
		}
	}
	return ""
}
