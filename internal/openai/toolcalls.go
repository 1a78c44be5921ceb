package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
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

// toolChoice reads tool_choice. It returns whether the model sees the tools, and the
// beginning of a call that the turn has to continue, "" for none.
func toolChoice(raw json.RawMessage, tools *jinja.List) (shown bool, forced string, err *apiError) {
	given := tools != nil && len(tools.Items) > 0
	word := "auto"
	if present(raw) {
		var ok bool
		if word, ok = as[string](raw); !ok {
			return namedChoice(raw, tools)
		}
	}
	switch word {
	case "auto":
		return given, "", nil
	case "none":
		return false, "", nil
	case "required":
		if !given {
			return false, "", invalid("tool_choice", "required, and there are no tools")
		}
		names := toolNames(tools)
		if len(names) > 1 {
			return true, chat.TokenToolCall + "\n{\"name\":", nil
		}
		return true, callOf(names[0]), nil
	}
	return false, "", invalid("tool_choice", "%s, want none, auto, required or a function", quoted(word))
}

// namedChoice reads the choice of one function.
func namedChoice(raw json.RawMessage, tools *jinja.List) (bool, string, *apiError) {
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &named) != nil || named.Type != "function" || named.Function.Name == "" {
		return false, "", invalid("tool_choice", `want none, auto, required or {"type": "function", "function": {"name": NAME}}`)
	}
	if !slices.Contains(toolNames(tools), named.Function.Name) {
		return false, "", invalid("tool_choice", "there is no tool %s", quoted(named.Function.Name))
	}
	return true, callOf(named.Function.Name), nil
}

// callOf is the beginning of a call of a tool. A space behind it would keep the tokenizer
// from the tokens that begin with one.
func callOf(name string) string {
	quotedName, _ := jinja.Encode(name) // a string always encodes
	return chat.TokenToolCall + "\n{\"name\": " + quotedName + ", \"arguments\":"
}

// toolNames are the names of tools in a request; "" for one that has none.
func toolNames(tools *jinja.List) []string {
	if tools == nil {
		return nil
	}
	names := make([]string, len(tools.Items))
	for i, v := range tools.Items {
		d, _ := v.(*jinja.Dict)
		if d == nil {
			continue
		}
		inner, _ := d.Get("function")
		if f, ok := inner.(*jinja.Dict); ok {
			d = f
		}
		name, _ := d.Get("name")
		names[i], _ = name.(string)
	}
	return names
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
