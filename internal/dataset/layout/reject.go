package layout

import "fmt"

// Reason is why a row was not kept.
type Reason string

// Reasons of rows that are malformed. They count against the bound on bad rows.
const (
	NotJSON        Reason = "not_json"
	NotUTF8        Reason = "not_utf8"
	TooLong        Reason = "too_long"
	NotObject      Reason = "not_an_object"
	DuplicateField Reason = "duplicate_field"
	MissingField   Reason = "missing_field"
	WrongType      Reason = "wrong_type"
	BadID          Reason = "bad_id"
	BadTools       Reason = "bad_tools"
	BadCall        Reason = "bad_call"
	BadRoles       Reason = "bad_roles"
)

// Reasons of rows that are well-formed and of no use.
const (
	NoPrompt     Reason = "no_prompt"
	NoAnswer     Reason = "no_answer"
	AnswerList   Reason = "answer_is_a_list"
	ManyTurns    Reason = "several_turns"
	NoCode       Reason = "no_code"
	NotPython    Reason = "not_python"
	NoAssistant  Reason = "no_assistant_message"
	Unverifiable Reason = "unverifiable_answer"
	NotInteger   Reason = "not_an_integer"
	HugeAnswer   Reason = "huge_answer"
	MultiPart    Reason = "multi_part"
	Duplicate    Reason = "duplicate_prompt"
	NoSamples    Reason = "no_samples"
	Disagreement Reason = "samples_disagree"
	LongPrompt   Reason = "prompt_too_long"
	Contaminated Reason = "contaminated"
)

// Bad reports whether the row is malformed, rather than of no use.
func (r Reason) Bad() bool {
	switch r {
	case NotJSON, NotUTF8, TooLong, NotObject, DuplicateField, MissingField, WrongType, BadID, BadTools, BadCall, BadRoles:
		return true
	default:
		return false
	}
}

// Reject tells why a row was not kept.
type Reject struct {
	Reason Reason
	Detail string
}

// Error is one line.
func (r *Reject) Error() string { return string(r.Reason) + ": " + r.Detail }

func reject(reason Reason, format string, args ...any) *Reject {
	return &Reject{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}
