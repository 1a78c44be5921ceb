package reward

import (
	"fmt"
	"slices"

	"temper/internal/answer"
)

// Mode selects how an answer is found and compared.
type Mode string

// Modes.
const (
	// Paper takes the last box in the last <answer> block.
	Paper Mode = "paper"
	// Tag takes the last <answer> block unchanged, with or without a box.
	Tag Mode = "tag"
	// Integer is Paper, or Tag if there is no box, and accepts only whole numbers.
	Integer Mode = "integer"
	// Released takes the last boxes anywhere, or the text after a phrase such as "the
	// answer is", or the last formula or number. It reads keys and answers loosely, and
	// also accepts a number that is within 1e-4 of the key, or a hundred times as great or
	// small, as rStar2-Agent's released grader does.
	Released Mode = "released"
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{Paper, Tag, Integer, Released} }

// Check returns an error for an unknown mode.
func (m Mode) Check() error {
	if !slices.Contains(Modes(), m) {
		return fmt.Errorf("mode is %q, want one of %s, %s, %s, %s", string(m), Paper, Tag, Integer, Released)
	}
	return nil
}

// Verdict is the judgement of a response.
type Verdict struct {
	Correct bool `json:"correct"`
	// Extracted is the answer as it is in the response; "" if there is none.
	Extracted string `json:"extracted"`
	// Method is the method of answer.Verdict, "close" for a number that is near enough, or
	// "none" without an answer.
	Method answer.Method `json:"method"`
	// Reason tells why an answer is not correct.
	Reason string `json:"reason,omitempty"`
}

// Methods besides those of package answer.
const (
	MethodNone  answer.Method = "none"
	MethodClose answer.Method = "close"
)

// Response judges a response by its key. Errors: an unknown mode; answer.ErrInvalid for a
// key by which no answer can be judged.
func Response(mode Mode, response, key string) (Verdict, error) {
	if err := mode.Check(); err != nil {
		return Verdict{}, err
	}
	if mode == Released {
		response, key = unescaped(response), unescaped(key)
	}
	said, _ := Find(mode, response)
	return Compare(mode, said, key)
}

// Find returns the answer of a text, "" if it has none, and the number of <answer> blocks.
func Find(mode Mode, text string) (said string, tags int) {
	switch mode {
	case Paper:
		return ExtractBoxed(text)
	case Released:
		_, tags = ExtractAnswer(text)
		return anywhere(text), tags
	case Integer:
		if said, tags = ExtractBoxed(text); said != "" {
			return said, tags
		}
	case Tag:
	}
	return ExtractAnswer(text)
}

// Compare compares an answer that Find has found with a key. It returns answer.ErrInvalid
// for a key by which no answer can be judged.
func Compare(mode Mode, said, key string) (Verdict, error) {
	if err := answer.CheckTruth(key); err != nil {
		return Verdict{}, err
	}
	switch {
	case said == "":
		return Verdict{Method: MethodNone, Reason: "the response has no answer"}, nil
	case mode == Integer:
		return integers(said, key), nil
	case mode == Released:
		return released(said, key)
	}
	v, err := answer.Equal(said, key)
	if err != nil {
		return Verdict{}, err
	}
	return Verdict{Correct: v.Equal, Extracted: said, Method: v.Method, Reason: v.Reason}, nil
}

// integers compares whole numbers by value.
func integers(said, key string) Verdict {
	out := Verdict{Extracted: said, Method: answer.MethodExact}
	got, okGot := answer.Number(said)
	want, okWant := answer.Number(key)
	switch {
	case !okWant || !want.IsInt():
		out.Reason = "the key is no whole number"
	case !okGot || !got.IsInt():
		out.Reason = "the answer is no whole number"
	case got.Cmp(want) != 0:
		out.Reason = "the values differ"
	default:
		out.Correct = true
	}
	return out
}
