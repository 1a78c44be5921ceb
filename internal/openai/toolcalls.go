package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"temper/internal/chat"
	"temper/internal/chat/jinja"
)

// toolCall is a call as clients read it.
type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in streams
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function calledByName `json:"function"`
}

type calledByName struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

// toolChoice reads tool_choice: whether the model sees the tools.
func toolChoice(raw json.RawMessage, tools *jinja.List) (shown bool, err *apiError) {
	given := tools != nil && len(tools.Items) > 0
	word := ""
	if present(raw) {
		var ok bool
		if word, ok = as[string](raw); !ok {
			word = "a named function"
		}
	}
	switch word {
	case "", "auto":
		return given, nil
	case "none":
		return false, nil
	}
	return false, invalid("tool_choice", "%s; this server does not force calls: want auto or none", quoted(word))
}

// findCalls reads the calls in the text of a turn. A call that is no JSON object with a name
// and arguments stays text. Whether the arguments fit their schema is for the client to see.
func findCalls(tools *chat.Toolset, text, id string, stream bool) (content string, calls []toolCall) {
	said := tools.Parse(text)
	for i, c := range said.Calls {
		if c.Arguments == nil || c.Name == "" {
			return text, nil
		}
		arguments, err := jinja.Encode(c.Arguments)
		if err != nil {
			return text, nil
		}
		call := toolCall{ID: fmt.Sprintf("call_%s_%d", id, i), Type: "function", Function: calledByName{Name: c.Name, Arguments: arguments}}
		if stream {
			call.Index = &i
		}
		calls = append(calls, call)
	}
	if len(calls) == 0 {
		return text, nil
	}
	return strings.TrimRight(said.Content, "\n"), calls
}

// neutralFormat reports whether a response_format asks for plain text.
func neutralFormat(raw json.RawMessage) bool {
	var f struct {
		Type string `json:"type"`
	}
	return !present(bytes.TrimSpace(raw)) || json.Unmarshal(raw, &f) == nil && f.Type == "text"
}
