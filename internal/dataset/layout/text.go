package layout

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	"regexp"
	"slices"
	"strings"

	"temper/internal/chat"
	"temper/internal/chat/jinja"
	"temper/internal/tool/builtin"
)

// isGlaive recognizes Glaive function calling v2.
func isGlaive(o *Object) bool {
	chatText, _ := o.Get("chat")
	return o.kind("system") == '"' && o.kind("chat") == '"' && strings.Contains(string(chatText), "USER:")
}

// speaker matches who speaks, at the beginning of a line.
var speaker = regexp.MustCompile(`(?m)^[ \t]*(USER|ASSISTANT|FUNCTION RESPONSE):[ \t]*`)

// glaiveEnd ends the turns of the assistant.
const (
	glaiveEnd  = "<|endoftext|>"
	glaiveCall = "<functioncall>"
)

func readGlaive(o *Object, item *Item, _ Options) error {
	common(o, item)
	system, err := needText(o, "system")
	if err != nil {
		return err
	}
	text, err := needText(o, "chat")
	if err != nil {
		return err
	}
	b := builder{}
	tools, bad := glaiveTools(system)
	if bad != nil {
		return bad
	}
	item.Dialogue.Tools = tools
	if len(tools) > 0 {
		item.Notes = append(item.Notes, SystemRemoved)
	} else {
		b.system(strings.TrimSpace(strings.TrimPrefix(system, "SYSTEM:")))
	}
	marks := speaker.FindAllStringSubmatchIndex(text, -1)
	if len(marks) == 0 || strings.TrimSpace(text[:marks[0][0]]) != "" {
		return reject(BadRoles, "chat does not begin with USER:")
	}
	for i, m := range marks {
		end := len(text)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		who := text[m[2]:m[3]]
		said := strings.TrimSpace(strings.ReplaceAll(text[m[1]:end], glaiveEnd, ""))
		if bad := b.sayGlaive(who, said); bad != nil {
			return bad
		}
	}
	item.Dialogue.Messages = b.messages
	return nil
}

func (b *builder) sayGlaive(who, text string) *Reject {
	switch who {
	case "USER":
		b.add(chat.RoleUser, text)
	case "FUNCTION RESPONSE":
		b.add(chat.RoleTool, text)
	default:
		content, call, found := strings.Cut(text, glaiveCall)
		b.add(chat.RoleAssistant, strings.TrimSpace(content))
		if !found {
			return nil
		}
		made, bad := readGlaiveCall(strings.TrimSpace(call))
		if bad != nil {
			return bad
		}
		b.call(made)
	}
	return nil
}

// glaiveHead matches the name of a call and what stands before its arguments.
var glaiveHead = regexp.MustCompile(`^\{\s*"name"\s*:\s*"([^"]+)"\s*(?:,\s*"arguments"\s*:\s*)?`)

// readGlaiveCall reads {"name": "f", "arguments": '{"a": 1}'}, where the arguments stand
// between single quotes and may hold some of their own.
func readGlaiveCall(text string) (chat.ToolCall, *Reject) {
	m := glaiveHead.FindStringSubmatchIndex(text)
	if m == nil {
		return chat.ToolCall{}, reject(BadCall, "a call has no name: %.60q", text)
	}
	name, rest := text[m[2]:m[3]], strings.TrimSpace(text[m[1]:])
	if rest == "}" || rest == "" {
		return newCallDict(name)
	}
	rest = strings.TrimSpace(strings.TrimSuffix(rest, "}"))
	if inner, ok := strings.CutPrefix(rest, "'"); ok {
		rest = strings.ReplaceAll(strings.TrimSuffix(inner, "'"), `\'`, "'")
		return newCall(name, rest)
	}
	return newCall(name, rest)
}

func newCallDict(name string) (chat.ToolCall, *Reject) { return newCall(name, jinja.NewDict()) }

// glaiveTools reads the JSON objects behind the words of the system message.
func glaiveTools(system string) ([]json.RawMessage, *Reject) {
	at := strings.IndexByte(system, '{')
	if at < 0 {
		return []json.RawMessage{}, nil
	}
	list := &jinja.List{}
	dec := jsontext.NewDecoder(strings.NewReader(system[at:]), jsontext.AllowDuplicateNames(true))
	for dec.PeekKind() == '{' {
		value, err := dec.ReadValue()
		if err != nil {
			return nil, reject(BadTools, "function %d of the system message is no JSON: %s", len(list.Items)+1, oneLine(err))
		}
		v, err := jinja.Decode(value)
		if err != nil {
			return nil, reject(BadTools, "function %d of the system message: %s", len(list.Items)+1, oneLine(err))
		}
		list.Items = append(list.Items, v)
	}
	if rest := strings.TrimSpace(system[at+int(dec.InputOffset()):]); rest != "" {
		return nil, reject(BadTools, "text behind the functions of the system message: %.40q", rest)
	}
	return toolsOf(list)
}

// isXLAM recognizes xLAM's columns.
func isXLAM(o *Object) bool { return o.Has("query", "answers", "tools") }

func readXLAM(o *Object, item *Item, _ Options) error {
	common(o, item)
	query, err := needText(o, "query")
	if err != nil {
		return err
	}
	tools, _ := o.Get("tools")
	if item.Dialogue.Tools, err = readTools(tools); err != nil {
		return err
	}
	answers, ok := o.Get("answers")
	if !ok {
		return reject(MissingField, "answers is missing")
	}
	calls, bad := readCalls(answers)
	if bad != nil {
		return bad
	}
	if len(calls) == 0 {
		return reject(NoAnswer, "answers is empty")
	}
	b := builder{}
	b.add(chat.RoleUser, query)
	b.call(calls...)
	item.Dialogue.Messages = b.messages
	return nil
}

// isMagicoder recognizes both sets of Magicoder.
func isMagicoder(o *Object) bool {
	return o.kind("instruction") == '"' && o.kind("response") == '"' || o.Has("lang", "problem", "solution")
}

// fence matches a block of code with its language.
var fence = regexp.MustCompile("(?ms)^```[ \t]*([A-Za-z0-9+#]*)[^\n]*\n(.*?)^```")

// readMagicoder makes a call of the code in the answer. It is not run, so that the
// dialogue ends with the call.
func readMagicoder(o *Object, item *Item, opts Options) error {
	common(o, item)
	item.ID = optionalText(o, "raw_index", "id", "index")
	prompt, err := needText(o, "instruction", "problem")
	if err != nil {
		return err
	}
	response, err := needText(o, "response", "solution")
	if err != nil {
		return err
	}
	if lang := strings.ToLower(optionalText(o, "lang")); lang != "" && lang != "python" {
		return reject(NotPython, "the language is %.40s", lang)
	}
	code, bad := pythonBlock(response)
	if bad != nil {
		return bad
	}
	tool := opts.CodeTool
	if tool == "" {
		tool = builtin.Python
	}
	arguments := builtin.Program{Code: code}.Arguments()
	if tool != builtin.Python {
		arguments = builtin.Program{Code: code}.Arguments("input")
	}
	call, bad := newCall(tool, arguments)
	if bad != nil {
		return bad
	}
	b := builder{}
	b.add(chat.RoleUser, prompt)
	b.call(call)
	item.Dialogue.Messages = b.messages
	return nil
}

// pythonBlock returns the first block of code in Python.
func pythonBlock(text string) (string, *Reject) {
	blocks := fence.FindAllStringSubmatch(text, -1)
	if len(blocks) == 0 {
		return "", reject(NoCode, "the answer has no block of code")
	}
	for _, b := range blocks {
		if lang := strings.ToLower(b[1]); lang == "python" || lang == "py" || lang == "python3" || lang == "" {
			if code := strings.TrimRight(b[2], "\n"); strings.TrimSpace(code) != "" {
				return code, nil
			}
		}
	}
	return "", reject(NotPython, "the code is in %.40s", blocks[0][1])
}

// isCompletion recognizes a prompt with its completion, and Alpaca's columns.
func isCompletion(o *Object) bool {
	return o.Has("prompt", "completion") || o.kind("instruction") == '"' && o.kind("output") == '"' || o.Has("prompt", "response")
}

func readCompletion(o *Object, item *Item, _ Options) error {
	common(o, item)
	item.Source = optionalText(o, "source")
	completion, ok := o.Get("completion")
	if !ok {
		completion, ok = o.Get("output")
	}
	if !ok {
		completion, ok = o.Get("response")
	}
	if !ok {
		return reject(MissingField, "completion is missing")
	}
	tools, _ := o.Get("tools")
	if prompt, ok := o.Get("prompt"); ok {
		return takeCompletion(optionalText(o, "system"), prompt, completion, tools, item)
	}
	instruction, err := needText(o, "instruction")
	if err != nil {
		return err
	}
	if input := optionalText(o, "input"); strings.TrimSpace(input) != "" {
		instruction += "\n\n" + input
	}
	prompt, err := jsontext.AppendQuote(nil, instruction)
	if err != nil {
		return reject(NotUTF8, "%v", err)
	}
	return takeCompletion(optionalText(o, "system"), prompt, completion, tools, item)
}

// takeCompletion joins a prompt and its completion, each a text or messages.
func takeCompletion(system string, prompt, completion, tools jsontext.Value, item *Item) error {
	b := builder{}
	b.system(system)
	var all []said
	for _, m := range b.messages {
		all = append(all, said{Message: m})
	}
	for _, part := range []struct {
		role  string
		value jsontext.Value
	}{{chat.RoleUser, prompt}, {chat.RoleAssistant, completion}} {
		messages, err := partOf(part.role, part.value)
		if err != nil {
			return err
		}
		all = append(all, messages...)
	}
	if len(all) > 0 && strings.TrimSpace(all[len(all)-1].Content) == "" && len(all[len(all)-1].ToolCalls) == 0 {
		return reject(NoAnswer, "the completion is empty")
	}
	var err error
	if item.Dialogue.Tools, err = readTools(tools); err != nil {
		return err
	}
	ordered, moved := orderResults(slices.Clone(all))
	if moved {
		item.Notes = append(item.Notes, ResultsReordered)
	}
	item.Dialogue.Messages = ordered
	return nil
}

func partOf(role string, v jsontext.Value) ([]said, error) {
	if text, ok := textOf(v); ok {
		return []said{{Message: chat.Message{Role: role, Content: text}}}, nil
	}
	if !bytes.HasPrefix(v, []byte("[")) {
		return nil, reject(WrongType, "want a text or messages, have %s", kindName(v))
	}
	return readMessageList(v)
}
