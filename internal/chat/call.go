package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"temper/internal/tool/builtin"
	"temper/sandbox/status"
)

// Call is one tool call of a turn.
type Call struct {
	Name string
	// Arguments are a JSON object.
	Arguments string
	// Malformed says in one line why the call cannot run; empty when it can.
	Malformed string
}

// ParsedTurn is the content of a turn.
type ParsedTurn struct {
	// Content is the text outside tool calls.
	Content string
	Calls   []Call
}

// ParseTurn reads the sampled tokens of one turn. The special tokens delimit calls,
// so the text of a tag inside a string of the code is just text. Where the tokenizer
// has no such tokens, the text of the tags delimits them; see Toolset.Parse. A call
// that the turn does not close counts as one malformed call. ParseTurn never fails.
func (f *Format) ParseTurn(tokens []int32) ParsedTurn {
	if n := len(tokens); n > 0 && tokens[n-1] == f.end {
		tokens = tokens[:n-1]
	}
	if f.call < 0 || f.callEnd < 0 {
		return f.dialect.parseText(f.tok.Decode(tokens))
	}
	var p ParsedTurn
	start, open := 0, false
	for i, id := range tokens {
		switch {
		case id == f.call && !open:
			p.Content += f.tok.Decode(tokens[start:i]) // mostly once
			start, open = i+1, true
		case id == f.callEnd && open:
			p.Calls = append(p.Calls, f.dialect.parseCall(f.tok.Decode(tokens[start:i])))
			start, open = i+1, false
		}
	}
	if open {
		p.Calls = append(p.Calls, malformedCall("not closed"))
	} else {
		p.Content += f.tok.Decode(tokens[start:])
	}
	return p
}

func malformedCall(why string) Call {
	return Call{Malformed: "Failed to decode tool call: " + why}
}

// parseProgramCall reads the JSON object of a call of the tool of the small ChatML.
// Member names are compared exactly; unknown members are ignored.
func parseProgramCall(body string) Call {
	var call map[string]json.RawMessage
	if !utf8.ValidString(body) || json.Unmarshal([]byte(body), &call) != nil || call == nil {
		return malformedCall("invalid JSON object")
	}
	name, ok := stringMember(call, "name")
	if !ok {
		return malformedCall("name must be a string")
	}
	if name != builtin.Python {
		return malformedCall("unknown tool, use " + builtin.Python)
	}
	if _, err := builtin.ProgramOf(string(call["arguments"])); err != nil {
		return malformedCall(err.Error())
	}
	return Call{Name: name, Arguments: rawArguments(body)}
}

func stringMember(object map[string]json.RawMessage, name string) (string, bool) {
	var s *string
	if json.Unmarshal(object[name], &s) != nil || s == nil {
		return "", false
	}
	return *s, true
}

// RenderCall returns the text of a call, with its tags.
func RenderCall(c Call) string { return renderCall(c.Name, c.Arguments) }

func renderCall(name, arguments string) string {
	return TokenToolCall + "\n" + `{"name": ` + quote(name) + `, "arguments": ` + arguments + "}\n" + TokenToolCallEnd
}

// quote returns s as a JSON string with the fewest escapes.
func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil { // a string always encodes
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}

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
