package layout

import (
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"io"
	"strings"

	"temper/internal/chat"
	"temper/internal/chat/jinja"
)

// utterance is one element of conversations.
type utterance struct {
	From  string         `json:"from"`
	Value jsontext.Value `json:"value"`
}

func isShareGPT(o *Object) bool {
	v, ok := o.Get("conversations")
	if !ok || v.Kind() != '[' {
		return false
	}
	from, ok := valueAt(v, "0.from")
	return ok && from.Kind() == '"'
}

func readUtterances(o *Object) ([]utterance, error) {
	v, ok := o.Get("conversations")
	if !ok {
		return nil, reject(MissingField, "conversations is missing")
	}
	var out []utterance
	if err := json.Unmarshal(v, &out); err != nil {
		return nil, reject(WrongType, "conversations: want a list of objects with from and value: %s", oneLine(err))
	}
	return out, nil
}

func readShareGPT(o *Object, item *Item, _ Options) error {
	common(o, item)
	item.Source = optionalText(o, "source")
	said, err := readUtterances(o)
	if err != nil {
		return err
	}
	tools, _ := o.Get("tools")
	if item.Dialogue.Tools, err = readTools(tools); err != nil {
		return err
	}
	b := builder{}
	b.system(optionalText(o, "system"))
	for i, u := range said {
		text, bad := contentOf(u.Value)
		if bad != nil {
			return bad
		}
		if err := b.addTurn(u.From, text); err != nil {
			err.Detail = "message " + itoa(i) + ": " + err.Detail
			return err
		}
	}
	item.Dialogue.Messages = b.messages
	return nil
}

// builder writes the messages of a dialogue.
type builder struct {
	messages []chat.Message
}

func (b *builder) system(text string) {
	if strings.TrimSpace(text) != "" {
		b.messages = append(b.messages, chat.Message{Role: chat.RoleSystem, Content: text})
	}
}

func (b *builder) add(role, text string) {
	b.messages = append(b.messages, chat.Message{Role: role, Content: text})
}

// call adds calls to the turn of the assistant, which may have begun.
func (b *builder) call(calls ...chat.ToolCall) {
	last := len(b.messages) - 1
	if last < 0 || b.messages[last].Role != chat.RoleAssistant {
		b.add(chat.RoleAssistant, "")
		last++
	}
	b.messages[last].ToolCalls = append(b.messages[last].ToolCalls, calls...)
}

// addTurn adds a turn that has the fields "from" and "value" of ShareGPT.
func (b *builder) addTurn(from, text string) *Reject {
	if from == "function_call" || from == "tool_call" {
		calls, bad := readCalls(jsontext.Value(text))
		if bad == nil {
			b.call(calls...)
		}
		return bad
	}
	role, ok := roles[from]
	switch {
	case !ok:
		return reject(BadRoles, "unknown from %.40q", from)
	case role == chat.RoleSystem:
		if len(b.messages) > 0 {
			return reject(BadRoles, "a system message that is not the first")
		}
		b.system(text)
	case role == chat.RoleAssistant && strings.Contains(text, chat.TokenToolCall):
		return b.sayTagged(text)
	default:
		b.add(role, text)
	}
	return nil
}

// sayTagged adds a turn whose calls stand between <tool_call> tags.
func (b *builder) sayTagged(text string) *Reject {
	content, rest, _ := strings.Cut(text, chat.TokenToolCall)
	b.add(chat.RoleAssistant, strings.TrimSpace(content))
	for {
		body, after, closed := strings.Cut(rest, chat.TokenToolCallEnd)
		if !closed {
			return reject(BadCall, "a call is not closed by %s", chat.TokenToolCallEnd)
		}
		v, bad := looseJSON(strings.TrimSpace(body))
		if bad != nil {
			return bad
		}
		call, bad := callOf(v)
		if bad != nil {
			return bad
		}
		b.call(call)
		between, next, more := strings.Cut(after, chat.TokenToolCall)
		if strings.TrimSpace(between) != "" {
			return reject(BadCall, "text behind a call: %.40q", strings.TrimSpace(between))
		}
		if !more {
			return nil
		}
		rest = next
	}
}

// looseJSON decodes JSON, or a literal of Python as some sets have it.
func looseJSON(text string) (jinja.Value, *Reject) {
	v, err := jinja.Decode([]byte(text))
	if err == nil {
		return v, nil
	}
	if p := (&literal{text: text}); p.skip() {
		if v, ok := p.value(0); ok && p.atEnd() {
			return v, nil
		}
	}
	return nil, reject(BadCall, "a call is no JSON: %s", oneLine(err))
}

// isToolACE recognizes calls of ToolACE's form, or its system message.
func isToolACE(o *Object) bool {
	if !isShareGPT(o) || o.kind("system") != '"' || o.Has("tools") {
		return false
	}
	system, _ := o.Get("system")
	return strings.Contains(string(system), "list of functions in JSON format")
}

// readToolACE takes the functions out of the system message. The rest of it describes
// another form of calls, so that it is left out.
func readToolACE(o *Object, item *Item, _ Options) error {
	common(o, item)
	said, err := readUtterances(o)
	if err != nil {
		return err
	}
	system := optionalText(o, "system")
	list, ok := listIn(system)
	if !ok {
		return reject(BadTools, "the system message lists no functions in JSON")
	}
	tools, bad := toolsOf(list)
	if bad != nil {
		return bad
	}
	item.Dialogue.Tools, item.Notes = tools, append(item.Notes, SystemRemoved)
	b := builder{}
	for i, u := range said {
		text, bad := contentOf(u.Value)
		if bad == nil {
			bad = b.sayToolACE(u.From, text)
		}
		if bad != nil {
			bad.Detail = "message " + itoa(i) + ": " + bad.Detail
			return bad
		}
	}
	item.Dialogue.Messages = b.messages
	return nil
}

// listIn finds the first list of objects in a text. It never reads a byte twice, so that a
// text full of brackets takes linear time.
func listIn(text string) (*jinja.List, bool) {
	for {
		at := strings.IndexByte(text, '[')
		if at < 0 {
			return nil, false
		}
		text = text[at:]
		if !strings.HasPrefix(strings.TrimLeft(text[1:], " \n\t\r"), "{") {
			text = text[1:]
			continue
		}
		value, err := jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true)).ReadValue()
		if err != nil {
			text = text[max(1, readUntil(err, text)):]
			continue
		}
		if v, err := jinja.Decode(value); err == nil {
			list, ok := v.(*jinja.List)
			return list, ok
		}
		text = text[len(value):]
	}
}

// readUntil is how far a text was read before an error: where it is no JSON, else its end.
func readUntil(err error, text string) int {
	var wrong *jsontext.SyntacticError
	if errors.As(err, &wrong) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return min(int(wrong.ByteOffset), len(text))
	}
	return len(text)
}

func (b *builder) sayToolACE(from, text string) *Reject {
	role, ok := roles[from]
	switch {
	case !ok || role == chat.RoleSystem:
		return reject(BadRoles, "unknown from %.40q", from)
	case role == chat.RoleTool:
		b.results(text)
		return nil
	case role != chat.RoleAssistant || !looksLikeCalls(text):
		b.add(role, text)
		return nil
	}
	calls, bad := pythonCalls(text)
	if bad == nil {
		b.add(chat.RoleAssistant, "")
		b.call(calls...)
	}
	return bad
}

// results adds the results of the calls before: ToolACE has a list of them in one message.
func (b *builder) results(text string) {
	numCalls := 0
	if last := len(b.messages) - 1; last >= 0 {
		numCalls = len(b.messages[last].ToolCalls)
	}
	if v, err := jinja.Decode([]byte(text)); err == nil && numCalls > 1 {
		if list, ok := v.(*jinja.List); ok && len(list.Items) == numCalls {
			for _, item := range list.Items {
				one, err := jinja.Encode(item)
				if err != nil {
					one = text
				}
				b.add(chat.RoleTool, one)
			}
			return
		}
	}
	b.add(chat.RoleTool, text)
}
