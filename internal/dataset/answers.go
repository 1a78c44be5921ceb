package dataset

import (
	"regexp"
	"strings"

	"temper/internal/answer"
	"temper/internal/dataset/layout"
)

// Answers tells which answers are kept.
type Answers string

// Answers, each with all that the one before it drops.
const (
	AnyAnswer  Answers = "any"        // every answer that is there
	Verifiable Answers = "verifiable" // formulas, of problems of one part
	Integers   Answers = "integers"   // whole numbers, as in the paper of rStar2-Agent
)

// Rules are conditions on an answer and its prompt.
type Rules struct {
	Answers Answers
	// MaxDigits bounds the digits of a whole number; 0 for no bound.
	MaxDigits int
}

// Check returns why a problem is dropped, nil if it is kept.
func (r Rules) Check(prompt, text string) *layout.Reject {
	switch {
	case strings.TrimSpace(prompt) == "":
		return &layout.Reject{Reason: layout.NoPrompt, Detail: "the prompt is empty"}
	case strings.TrimSpace(text) == "":
		return &layout.Reject{Reason: layout.NoAnswer, Detail: "there is no answer"}
	}
	if err := answer.CheckTruth(text); err != nil {
		return &layout.Reject{Reason: layout.Unverifiable, Detail: err.Error()}
	}
	if r.Answers == AnyAnswer || r.Answers == "" {
		return r.checkSize(text)
	}
	if why := manyParts(prompt, text); why != "" {
		return &layout.Reject{Reason: layout.MultiPart, Detail: why}
	}
	if r.Answers == Integers {
		if !isInteger(text) {
			return &layout.Reject{Reason: layout.NotInteger, Detail: excerpt(text)}
		}
		return r.checkSize(text)
	}
	if !answer.Computable(text) {
		return &layout.Reject{Reason: layout.Unverifiable, Detail: excerpt(text)}
	}
	return r.checkSize(text)
}

func (r Rules) checkSize(text string) *layout.Reject {
	digits := 0
	for _, c := range text {
		if '0' <= c && c <= '9' {
			digits++
		}
	}
	if r.MaxDigits > 0 && digits > r.MaxDigits && isInteger(text) {
		return &layout.Reject{Reason: layout.HugeAnswer, Detail: excerpt(text)}
	}
	return nil
}

func excerpt(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 60 {
		return string(r[:57]) + "..."
	}
	return text
}

// isInteger reports whether the answer is a whole number in any form.
func isInteger(text string) bool {
	plain := strings.TrimPrefix(strings.TrimSpace(text), "-")
	if plain != "" && len(plain) < 19 && strings.Trim(plain, "0123456789") == "" {
		return true
	}
	n, ok := answer.Number(text)
	return ok && n.IsInt()
}

var (
	// partMark matches the mark of a part: (a), a), (i), 1) or Part 2 at the beginning of a
	// line or of a sentence.
	partMark = regexp.MustCompile(`(?im)(?:^|[.;:?]\s+|\n\s*)(?:\(([a-e]|i{1,3}|iv|[1-5])\)|([a-e]|[1-5])\)|part\s+([a-e1-5])\b)`)
	// answerMark matches the mark of a part in an answer.
	answerMark = regexp.MustCompile(`(?i)(?:^|[\s,;])(?:\(([a-e]|i{1,3})\)|([a-e])\))\s*[^)\s]`)
)

// manyParts reports why a problem asks for several answers; "" for one answer.
func manyParts(prompt, text string) string {
	if mayHaveParts(text) && distinct(answerMark.FindAllStringSubmatch(text, -1)) >= 2 {
		return "the answer has several parts: " + excerpt(text)
	}
	if mayHaveParts(prompt) && distinct(partMark.FindAllStringSubmatch(prompt, -1)) >= 2 {
		return "the prompt asks for several parts"
	}
	if strings.Contains(text, "\n") && strings.Count(text, "=") > 1 && !strings.Contains(text, `\begin`) {
		return "the answer has several lines"
	}
	return ""
}

// mayHaveParts reports whether a text may have a mark of a part. It is much faster than the
// expressions, which few texts need.
func mayHaveParts(text string) bool {
	for i := 1; i < len(text); i++ {
		if c := text[i-1] | 0x20; text[i] == ')' && ('a' <= c && c <= 'e' || c == 'i' || c == 'v' || '1' <= text[i-1] && text[i-1] <= '5') {
			return true
		}
		if (text[i] == 'a' || text[i] == 'A') && (text[i-1]|0x20) == 'p' && i+2 < len(text) && strings.EqualFold(text[i-1:i+3], "part") {
			return true
		}
	}
	return false
}

// distinct counts the different marks.
func distinct(found [][]string) int {
	seen := map[string]bool{}
	for _, groups := range found {
		for _, g := range groups[1:] {
			if g != "" {
				seen[strings.ToLower(g)] = true
			}
		}
	}
	return len(seen)
}
