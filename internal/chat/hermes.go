package chat

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"temper/internal/tool/builtin"
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
