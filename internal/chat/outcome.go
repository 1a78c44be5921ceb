package chat

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"temper/sandbox/status"
)

// cutMark replaces the middle of a tool response that is too long.
const cutMark = "...(truncated)..."

// Outcome is how a tool call ended, as far as a policy may see it. It holds no
// times or addresses, so equal programs give equal text.
type Outcome struct {
	Status   status.Status
	Stdout   string
	Stderr   string // shown only for a failed program without an exception
	Value    string // repr of the last expression
	ErrType  string // exception
	ErrMsg   string
	ErrLine  int // 0 when unknown
	ExitCode int
	Reason   string // why a request was refused, or the line of a malformed call
}

// Text returns the tool response of at most maxChars characters, cut in the middle;
// 0 means no limit. It leaves out what a stopped program printed, because that
// depends on how far the program came.
func (o Outcome) Text(maxChars int) string {
	return cutMiddle(o.text(), maxChars)
}

func (o Outcome) text() string {
	switch o.Status {
	case status.OK:
		if text := joinBlocks(o.Stdout, o.Value); text != "" {
			return text
		}
		return "(no output)"
	case status.Error:
		return joinBlocks(o.Stdout, o.failure())
	case status.TimeLimit:
		return "TimeLimit: the program took too long"
	case status.MemoryLimit:
		return "MemoryLimit: the program used too much memory"
	case status.OutputLimit:
		return "OutputLimit: the program printed too much"
	case status.Killed:
		return "Killed: the program was killed by a signal"
	case status.Refused:
		return "Refused: " + o.Reason
	case status.Malformed:
		return o.Reason
	default:
		return "Failed: " + string(o.Status)
	}
}

// failure returns the line for an exception or a non-zero exit.
func (o Outcome) failure() string {
	switch {
	case o.ErrType == "" && o.Stderr != "":
		return joinBlocks(o.Stderr, fmt.Sprintf("exit status %d", o.ExitCode))
	case o.ErrType == "":
		return fmt.Sprintf("exit status %d", o.ExitCode)
	}
	text := o.ErrType
	if o.ErrLine > 0 {
		text += fmt.Sprintf(" at line %d", o.ErrLine)
	}
	if o.ErrMsg != "" {
		text += ": " + o.ErrMsg
	}
	return text
}

// joinBlocks joins non-empty blocks, each without its final newline.
func joinBlocks(blocks ...string) string {
	var kept []string
	for _, b := range blocks {
		if b = strings.TrimSuffix(b, "\n"); b != "" {
			kept = append(kept, b)
		}
	}
	return strings.Join(kept, "\n")
}

// cutMiddle keeps the first and the last half of maxChars characters.
func cutMiddle(text string, maxChars int) string {
	if maxChars <= 0 || utf8.RuneCountInString(text) <= maxChars {
		return text
	}
	runes := []rune(text)
	head := (maxChars + 1) / 2
	tail := len(runes) - (maxChars - head)
	return string(runes[:head]) + cutMark + string(runes[tail:])
}
