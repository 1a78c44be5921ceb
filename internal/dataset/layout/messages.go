package layout

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strings"

	"temper/internal/chat"
	"temper/internal/chat/jinja"
)

// finish checks a dialogue and takes off what stands behind the last message of the
// assistant, which alone is learned.
func finish(item *Item) error {
	d := &item.Dialogue
	last := len(d.Messages) - 1
	for last >= 0 && d.Messages[last].Role != chat.RoleAssistant {
		last--
	}
	if last < 0 {
		return reject(NoAssistant, "no message is of the assistant")
	}
	if last < len(d.Messages)-1 {
		d.Messages = d.Messages[:last+1]
		item.Notes = append(item.Notes, EndRemoved)
	}
	calls := false
	for _, m := range d.Messages {
		calls = calls || len(m.ToolCalls) > 0
	}
	if d.Tools == nil && !calls {
		d.Tools = []json.RawMessage{} // it was made without tools
	}
	if err := d.Validate(); err != nil {
		if strings.Contains(err.Error(), "tool call") || strings.Contains(err.Error(), "tool_call") {
			return reject(BadCall, "%v", err)
		}
		if strings.Contains(err.Error(), "tools") {
			return reject(BadTools, "%v", err)
		}
		return reject(BadRoles, "%v", err)
	}
	return nil
}

// isMessages recognizes the form of OpenAI's API.
func isMessages(o *Object) bool {
	v, ok := o.Get("messages")
	if !ok || v.Kind() != '[' {
		return false
	}
	role, ok := valueAt(v, "0.role")
	return ok && role.Kind() == '"'
}

func readMessages(o *Object, item *Item, _ Options) error {
	common(o, item)
	item.Source = optionalText(o, "source")
	v, ok := o.Get("messages")
	if !ok {
		return reject(MissingField, "messages is missing")
	}
	tools, ok := o.Get("tools")
	if !ok {
		tools, _ = o.Get("functions")
	}
	return takeMessages(v, tools, item)
}

func takeMessages(v, tools jsontext.Value, item *Item) (err error) {
	messages, err := readMessageList(v)
	if err != nil {
		return err
	}
	if item.Dialogue.Tools, err = readTools(tools); err != nil {
		return err
	}
	for i := range messages {
		if messages[i].reasoning {
			item.Notes = append(item.Notes, ReasoningRemoved)
			break
		}
	}
	ordered, moved := orderResults(messages)
	if moved {
		item.Notes = append(item.Notes, ResultsReordered)
	}
	item.Dialogue.Messages = ordered
	return nil
}

// said is one message as a row has it.
type said struct {
	chat.Message
	reasoning bool
}

// rawMessage is a message in any form that OpenAI's API has had.
type rawMessage struct {
	Role             string         `json:"role"`
	Content          jsontext.Value `json:"content"`
	ToolCalls        jsontext.Value `json:"tool_calls"`
	FunctionCall     jsontext.Value `json:"function_call"`
	ToolCallID       jsontext.Value `json:"tool_call_id"`
	ReasoningContent jsontext.Value `json:"reasoning_content"`
}

// roles are the names that sets have for the four roles.
var roles = map[string]string{
	"system": chat.RoleSystem, "developer": chat.RoleSystem,
	"user": chat.RoleUser, "human": chat.RoleUser,
	"assistant": chat.RoleAssistant, "gpt": chat.RoleAssistant, "chatgpt": chat.RoleAssistant, "model": chat.RoleAssistant, "bot": chat.RoleAssistant,
	"tool": chat.RoleTool, "function": chat.RoleTool, "observation": chat.RoleTool, "function_response": chat.RoleTool, "ipython": chat.RoleTool,
}

// readMessageList reads messages in the form of OpenAI's API.
func readMessageList(v jsontext.Value) ([]said, error) {
	if text, ok := textOf(v); ok {
		v = jsontext.Value(text)
	}
	var raw []rawMessage
	if err := json.Unmarshal(v, &raw); err != nil {
		return nil, reject(WrongType, "messages: want a list of objects with role and content: %s", oneLine(err))
	}
	out := make([]said, 0, len(raw))
	for i, r := range raw {
		m, err := r.message()
		if err != nil {
			err.Detail = fmt.Sprintf("message %d: %s", i, err.Detail)
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func (r rawMessage) message() (said, *Reject) {
	role, ok := roles[r.Role]
	if !ok {
		return said{}, reject(BadRoles, "unknown role %.40q", r.Role)
	}
	m := said{Message: chat.Message{Role: role}, reasoning: isSet(r.ReasoningContent)}
	content, bad := contentOf(r.Content)
	if bad != nil {
		return said{}, bad
	}
	m.Content = content
	if role == chat.RoleTool {
		m.ToolCallID, _ = textOf(r.ToolCallID)
		return m, nil
	}
	for _, v := range []jsontext.Value{r.ToolCalls, r.FunctionCall} {
		if !isSet(v) {
			continue
		}
		calls, bad := readCalls(v)
		if bad != nil {
			return said{}, bad
		}
		m.ToolCalls = append(m.ToolCalls, calls...)
	}
	return m, nil
}

// isSet reports whether a value is there, and neither null nor an empty text.
func isSet(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != 'n' && string(v) != `""` }

// contentOf reads a text, null, or a list of parts.
func contentOf(v jsontext.Value) (string, *Reject) {
	if !isSet(v) {
		return "", nil
	}
	if text, ok := textOf(v); ok {
		return text, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if v.Kind() != '[' || json.Unmarshal(v, &parts) != nil {
		return "", reject(WrongType, "content: want a text, have %s", kindName(v))
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type != "text" && p.Type != "" {
			return "", reject(WrongType, "content: a part is of type %.40q, want text", p.Type)
		}
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// readCalls reads one call or a list of them, also as JSON within a text.
func readCalls(v jsontext.Value) ([]chat.ToolCall, *Reject) {
	if text, ok := textOf(v); ok {
		v = jsontext.Value(text)
	}
	decoded, err := jinja.Decode(v)
	if err != nil {
		return nil, reject(BadCall, "calls are no JSON: %s", oneLine(err))
	}
	list, ok := decoded.(*jinja.List)
	if !ok {
		list = &jinja.List{Items: []jinja.Value{decoded}}
	}
	var out []chat.ToolCall
	for _, item := range list.Items {
		call, bad := callOf(item)
		if bad != nil {
			return nil, bad
		}
		out = append(out, call)
	}
	return out, nil
}

// callOf reads {"id", "function": {"name", "arguments"}} or {"name", "arguments"}.
func callOf(v jinja.Value) (chat.ToolCall, *Reject) {
	outer, ok := v.(*jinja.Dict)
	if !ok {
		return chat.ToolCall{}, reject(BadCall, "a call is no object")
	}
	inner := outer
	if f, ok := outer.Get("function"); ok {
		if inner, ok = f.(*jinja.Dict); !ok {
			return chat.ToolCall{}, reject(BadCall, "function of a call is no object")
		}
	}
	name, _ := inner.Get("name")
	text, _ := name.(string)
	if text == "" {
		return chat.ToolCall{}, reject(BadCall, "a call has no name")
	}
	arguments, ok := inner.Get("arguments")
	if !ok {
		arguments, ok = inner.Get("parameters")
	}
	if !ok || arguments == nil {
		arguments = jinja.NewDict()
	}
	call, bad := newCall(text, arguments)
	if id, _ := outer.Get("id"); bad == nil {
		call.ID, _ = id.(string)
	}
	return call, bad
}

// newCall makes a call of arguments that are an object or the JSON of one.
func newCall(name string, arguments jinja.Value) (chat.ToolCall, *Reject) {
	if text, ok := arguments.(string); ok {
		if strings.TrimSpace(text) == "" {
			text = "{}"
		}
		decoded, err := jinja.Decode([]byte(text))
		if err != nil {
			return chat.ToolCall{}, reject(BadCall, "arguments of %.60s are no JSON: %s", name, oneLine(err))
		}
		arguments = decoded
	}
	if _, ok := arguments.(*jinja.Dict); !ok {
		return chat.ToolCall{}, reject(BadCall, "arguments of %.60s are no object", name)
	}
	text, err := jinja.Encode(arguments)
	if err != nil {
		return chat.ToolCall{}, reject(BadCall, "arguments of %.60s: %s", name, oneLine(err))
	}
	return chat.ToolCall{Type: "function", Function: chat.Function{Name: name, Arguments: text}}, nil
}

// orderResults puts tool results in the order of their calls, by their ids, and takes the
// ids off: the order says it all.
func orderResults(messages []said) (out []chat.Message, moved bool) {
	for i := 0; i < len(messages); {
		m := messages[i].Message
		i++
		var results []chat.Message
		for ; m.Role == chat.RoleAssistant && i < len(messages) && messages[i].Role == chat.RoleTool; i++ {
			results = append(results, messages[i].Message)
		}
		place := map[string]int{}
		for at, c := range m.ToolCalls {
			place[c.ID] = at
		}
		known := func(r chat.Message) int {
			if at, ok := place[r.ToolCallID]; ok && r.ToolCallID != "" {
				return at
			}
			return len(place)
		}
		if !slices.IsSortedFunc(results, func(a, b chat.Message) int { return known(a) - known(b) }) {
			slices.SortStableFunc(results, func(a, b chat.Message) int { return known(a) - known(b) })
			moved = true
		}
		out = append(out, m)
		out = append(out, results...)
	}
	for i := range out {
		out[i].ToolCallID = ""
		for j := range out[i].ToolCalls {
			out[i].ToolCalls[j].ID = ""
		}
	}
	return out, moved
}

// readTools reads the schemas of tools: a list, one object, or JSON of either within a
// text. They are nil where the row has none.
func readTools(v jsontext.Value) ([]json.RawMessage, error) {
	if len(v) == 0 || v.Kind() == 'n' {
		return nil, nil
	}
	text := []byte(v)
	if s, ok := textOf(v); ok {
		if strings.TrimSpace(s) == "" {
			return nil, nil
		}
		text = []byte(s)
	}
	decoded, err := jinja.Decode(bytes.TrimSpace(text))
	if err != nil {
		return nil, reject(BadTools, "tools are no JSON: %s", oneLine(err))
	}
	list, ok := decoded.(*jinja.List)
	if !ok {
		list = &jinja.List{Items: []jinja.Value{decoded}}
	}
	out, bad := toolsOf(list)
	if bad != nil {
		return nil, bad
	}
	return out, nil
}
