package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"temper/internal/chat"
	"temper/internal/chat/jinja"
)

// conversation reads messages, tools and variables of the template from a request, in the
// form that templates expect. opening is the text with which the template begins a turn.
func conversation(opening string, messages, tools, vars json.RawMessage) (chat.Request, *apiError) {
	req := chat.Request{AddGenerationPrompt: true, Vars: jinja.NewDict()}
	list, err := listOf("messages", messages)
	if err != nil {
		return req, err
	}
	if len(list.Items) == 0 {
		return req, invalid("messages", "want at least one")
	}
	req.Messages = &jinja.List{Items: make([]jinja.Value, len(list.Items))}
	for i, v := range list.Items {
		if req.Messages.Items[i], err = message(opening, fmt.Sprintf("messages[%d]", i), v); err != nil {
			return req, err
		}
	}
	if present(tools) {
		if req.Tools, err = listOf("tools", tools); err != nil {
			return req, err
		}
	}
	if present(vars) {
		v, decodeErr := jinja.Decode(vars)
		dict, ok := v.(*jinja.Dict)
		if decodeErr != nil || !ok {
			return req, invalid("chat_template_kwargs", "want an object")
		}
		req.Vars = dict
	}
	return req, nil
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func listOf(param string, raw json.RawMessage) (*jinja.List, *apiError) {
	if !present(raw) {
		return nil, invalid(param, "is missing")
	}
	v, err := jinja.Decode(raw)
	if err != nil {
		return nil, invalid(param, "%v", err)
	}
	list, ok := v.(*jinja.List)
	if !ok {
		return nil, invalid(param, "want a list")
	}
	return list, nil
}

// roles that a message may have. The newer name of system is rendered as system.
var roles = []string{chat.RoleSystem, chat.RoleUser, chat.RoleAssistant, chat.RoleTool, "developer"}

// message makes a message of a request one that templates render: text parts joined, no
// null content, arguments of calls as objects.
func message(opening, param string, v jinja.Value) (jinja.Value, *apiError) {
	given, ok := v.(*jinja.Dict)
	if !ok {
		return nil, invalid(param, "want an object")
	}
	m := given.Clone()
	role, _ := m.Get("role")
	name, _ := role.(string)
	if !slices.Contains(roles, name) {
		return nil, invalid(param+".role", "%s, want one of %v", quoted(fmt.Sprint(role)), roles)
	}
	if name == "developer" {
		m.Set("role", chat.RoleSystem)
	}
	content, _ := m.Get("content")
	text, err := contentText(param+".content", content)
	if err != nil {
		return nil, err
	}
	if name == chat.RoleAssistant {
		text = withOpening(text, opening)
	}
	m.Set("content", text)
	calls, _ := m.Get("tool_calls")
	if calls == nil {
		return m, nil
	}
	list, ok := calls.(*jinja.List)
	if !ok || name != chat.RoleAssistant {
		return nil, invalid(param+".tool_calls", "want a list, in a message of the assistant")
	}
	objects, err := callObjects(param, list)
	if err != nil {
		return nil, err
	}
	m.Set("tool_calls", objects)
	return m, nil
}

// withOpening gives a turn the opening of the prompt back, such as <reason>. A client never
// saw it: it was no part of what the model said. Only words that close it have lost it.
func withOpening(text, opening string) string {
	name, isTag := strings.CutPrefix(strings.TrimSpace(opening), "<")
	if !isTag || strings.HasPrefix(text, opening) {
		return text
	}
	closes, opens := strings.Index(text, "</"+name), strings.Index(text, "<"+name)
	if closes < 0 || opens >= 0 && opens < closes {
		return text
	}
	return opening + text
}

// contentText joins the text parts of a content.
func contentText(param string, content jinja.Value) (string, *apiError) {
	switch c := content.(type) {
	case nil:
		return "", nil
	case string:
		return c, nil
	case *jinja.List:
		var whole strings.Builder
		for i, v := range c.Items {
			part, ok := v.(*jinja.Dict)
			if !ok {
				return "", invalid(fmt.Sprintf("%s[%d]", param, i), "want an object")
			}
			kind, _ := part.Get("type")
			text, _ := part.Get("text")
			s, ok := text.(string)
			if kind != "text" || !ok {
				return "", invalid(fmt.Sprintf("%s[%d]", param, i), "a part of type %s; this model reads text only", quoted(fmt.Sprint(kind)))
			}
			whole.WriteString(s)
		}
		return whole.String(), nil
	}
	return "", invalid(param, "want a string or a list of parts")
}

// callObjects turns the arguments of calls, which travel as a string, into objects.
func callObjects(param string, list *jinja.List) (*jinja.List, *apiError) {
	out := &jinja.List{Items: make([]jinja.Value, len(list.Items))}
	for i, v := range list.Items {
		at := fmt.Sprintf("%s.tool_calls[%d].function", param, i)
		call, _ := v.(*jinja.Dict)
		if call == nil {
			return nil, invalid(at, "want an object")
		}
		inner, _ := call.Get("function")
		function, ok := inner.(*jinja.Dict)
		if !ok {
			return nil, invalid(at, "want an object")
		}
		function = function.Clone()
		given, _ := function.Get("arguments")
		if text, isText := given.(string); isText {
			decoded, err := jinja.Decode([]byte(text))
			if _, ok := decoded.(*jinja.Dict); err != nil || !ok {
				return nil, invalid(at+".arguments", "want a JSON object in a string")
			}
			function.Set("arguments", decoded)
		}
		call = call.Clone()
		call.Set("function", function)
		out.Items[i] = call
	}
	return out, nil
}
