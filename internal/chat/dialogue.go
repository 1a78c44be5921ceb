package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"temper/internal/chat/tokenizer"
	"temper/internal/tool/builtin"
)

// Roles of messages.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Message is one message of a training dialogue in the OpenAI form.
type Message struct {
	// Role is the author: system, user, assistant or tool.
	Role string `json:"role"`
	// Content is the text. In system and assistant messages special tokens count, so
	// that a malformed tool call can be written literally; elsewhere they are text.
	Content string `json:"content,omitempty"`
	// ToolCalls are the well-formed tool calls of an assistant message.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// ToolCallID names the call that a tool message answers. Results stand in the order of
	// their calls, with or without it.
	ToolCallID string `json:"tool_call_id,omitempty"`
}

// ToolCall is a well-formed call of an assistant message.
type ToolCall struct {
	// ID is a name for tool_call_id. A template sees another one.
	ID string `json:"id,omitempty"`
	// Type is "function".
	Type string `json:"type,omitempty"`
	// Function is the tool with its arguments.
	Function Function `json:"function"`
}

// Function is a tool with its arguments.
type Function struct {
	// Name is the name of the tool, for example python.
	Name string `json:"name"`
	// Arguments are a JSON object, written into a text as in the OpenAI form.
	Arguments string `json:"arguments"`
}

// Dialogue is one training conversation.
type Dialogue struct {
	// ID is a name for people; nothing depends on it.
	ID string `json:"id,omitempty"`
	// Source is the data set that the dialogue comes from.
	Source string `json:"source,omitempty"`
	// License is the licence of the source.
	License string `json:"license,omitempty"`
	// Tools are the JSON schemas of the tools of this dialogue alone, with or without
	// {"type": "function", "function": ...} around them. Its prompt shows them in place of
	// the run's tools, and its calls are of them; none is ever executed. An empty list shows
	// no tools. Without this field the dialogue has the tools of the run.
	Tools []json.RawMessage `json:"tools,omitzero"`
	// Messages are the messages in order.
	Messages []Message `json:"messages"`
}

// CallMessage returns the assistant message that makes the given calls.
func CallMessage(calls ...Call) Message {
	m := Message{Role: RoleAssistant}
	for _, c := range calls {
		m.ToolCalls = append(m.ToolCalls, ToolCall{Type: "function", Function: Function{Name: c.Name, Arguments: c.Arguments}})
	}
	return m
}

// AssistantText returns the text of an assistant message as a policy would
// sample it, without the final end token.
func AssistantText(m Message) (string, error) { return joinCalls(m, knownCall) }

// joinCalls returns the content of a message with its calls behind it.
func joinCalls(m Message, render func(ToolCall) (string, error)) (string, error) {
	text := m.Content
	for i, c := range m.ToolCalls {
		rendered, err := render(c)
		if err != nil {
			return "", fmt.Errorf("tool call %d: %w", i, err)
		}
		if text != "" {
			text += "\n"
		}
		text += rendered
	}
	return text, nil
}

// knownCall renders a call of the tool of the small ChatML in its canonical form, and a
// call of another tool unchanged.
func knownCall(c ToolCall) (string, error) {
	if !json.Valid([]byte(c.Function.Arguments)) {
		return "", errors.New("arguments are no JSON; write a malformed call as content")
	}
	if !builtin.IsProgram(c.Function.Name) {
		return renderCall(c.Function.Name, c.Function.Arguments), nil
	}
	call := parseProgramCall(c.callBody())
	if call.Malformed != "" {
		return "", errors.New(call.Malformed)
	}
	program, err := builtin.ProgramOf(call.Arguments)
	return renderCall(call.Name, program.Arguments()), err
}

// Validate reports what Render would refuse. The roles have this order: an optional
// system message, a user message, an assistant message, and after each of these
// tool results or another user message. The last message is the assistant's.
func (d Dialogue) Validate() error {
	tools, err := d.ownTools()
	if err != nil {
		return err
	}
	_, messages := d.split()
	previous := ""
	var open []ToolCall
	for i, m := range messages {
		if !roleMayFollow(m.Role, previous) {
			return fmt.Errorf("message %d of role %q after %q", len(d.Messages)-len(messages)+i, m.Role, previous)
		}
		err := m.checkCalls(tools)
		if err == nil {
			open, err = m.answers(open)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", len(d.Messages)-len(messages)+i, err)
		}
		previous = m.Role
	}
	if previous != RoleAssistant {
		return fmt.Errorf("the last message is of role %q, want %q", previous, RoleAssistant)
	}
	return nil
}

// checkCalls reports calls that do not fit the dialogue's own tools, nil for none, or the
// schema of a built-in tool. Only the Format of a run can check calls of the run's tools;
// see checkOwnCalls.
func (m Message) checkCalls(tools *Toolset) error {
	if m.Role != RoleAssistant || len(m.ToolCalls) == 0 {
		return nil
	}
	if tools != nil {
		return tools.checkDialogueCalls(m.ToolCalls)
	}
	_, all, err := builtinToolset(builtin.Names())
	if err != nil {
		return err
	}
	for i, c := range m.ToolCalls {
		if call := all.parseCall(c.callBody()); call.Malformed != "" && slices.Contains(builtin.Names(), c.Function.Name) {
			return fmt.Errorf("tool call %d: %s", i, call.Malformed)
		}
	}
	return nil
}

// answers returns the calls that wait for a result after the message. A tool_call_id must
// name the next of them.
func (m Message) answers(open []ToolCall) ([]ToolCall, error) {
	switch {
	case m.Role == RoleAssistant:
		return m.ToolCalls, nil
	case m.Role != RoleTool || len(open) == 0:
		return nil, nil
	case m.ToolCallID != "" && open[0].ID != m.ToolCallID:
		return nil, fmt.Errorf("tool_call_id is %.40q, but the next call without a result is %.40q", m.ToolCallID, open[0].ID)
	}
	return open[1:], nil
}

// callBody returns the JSON object of the call, which stands between its tags.
func (c ToolCall) callBody() string {
	return `{"name": ` + quote(c.Function.Name) + `, "arguments": ` + c.Function.Arguments + `}`
}

func roleMayFollow(role, previous string) bool {
	switch role {
	case RoleUser:
		return previous == "" || previous == RoleAssistant
	case RoleAssistant:
		return previous == RoleUser || previous == RoleTool
	case RoleTool:
		return previous == RoleAssistant || previous == RoleTool
	default:
		return false
	}
}

// split separates the system message, nil when there is none, from the others.
func (d Dialogue) split() (*Message, []Message) {
	if len(d.Messages) > 0 && d.Messages[0].Role == RoleSystem {
		return &d.Messages[0], d.Messages[1:]
	}
	return nil, d.Messages
}

// Render turns a dialogue into tokens through the same Transcript as a rollout.
// The LossMask is true on assistant messages with their end token. A system
// message of the dialogue replaces the one of the Format.
func (f *Format) Render(d Dialogue) (*Transcript, error) {
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("render dialogue: %w", err)
	}
	if err := f.checkOwnCalls(d); err != nil {
		return nil, fmt.Errorf("render dialogue: %w", err)
	}
	t, err := f.render(d)
	if err != nil {
		return nil, fmt.Errorf("render dialogue: %w", err)
	}
	return t, nil
}

// checkOwnCalls reports calls of tools that the format does not have, and those that do
// not fit the schemas of functions.
func (f *Format) checkOwnCalls(d Dialogue) error {
	if d.Tools != nil {
		return nil // Validate has judged them
	}
	for i, m := range d.Messages {
		for j, c := range m.ToolCalls {
			if !f.checked && builtin.IsProgram(c.Function.Name) {
				continue
			}
			if call := f.dialect.parseCall(c.callBody()); call.Malformed != "" {
				return fmt.Errorf("message %d: tool call %d: %s", i, j, call.Malformed)
			}
		}
	}
	return nil
}

func (f *Format) render(d Dialogue) (*Transcript, error) {
	f, err := f.withTools(d)
	if err != nil {
		return nil, err
	}
	first, messages := d.split()
	system := f.system
	if first != nil {
		system = first.Content
	}
	t, err := f.begin(system, messages[0].Content)
	if err != nil {
		return nil, err
	}
	said, err := f.dialect.assistantTurns(Dialogue{Messages: withSystem(system, messages)})
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(messages); {
		if messages[i].Role == RoleAssistant {
			if err := t.AppendSampled(said[0], make([]float32, len(said[0]))); err != nil {
				return nil, err
			}
			said = said[1:]
			i++
			continue
		}
		next := nextAssistant(messages, i)
		tokens, err := f.dialect.textBetweenTurns(messages[i:next])
		if err != nil {
			return nil, err
		}
		t.appendTokens(tokens)
		i = next
	}
	return t, nil
}

func withSystem(system string, messages []Message) []Message {
	if system == "" {
		return messages
	}
	return append([]Message{{Role: RoleSystem, Content: system}}, messages...)
}

// nextAssistant returns the index of the first assistant message at or after i, or
// the number of messages when there is none.
func nextAssistant(messages []Message, i int) int {
	for i < len(messages) && messages[i].Role != RoleAssistant {
		i++
	}
	return i
}

// TrainTokenizer learns a tokenizer with all Specials from the texts that Render
// makes of the dialogues.
func TrainTokenizer(cfg Config, dialogues []Dialogue, numMerges int) (*tokenizer.Tokenizer, error) {
	f, err := NewPlain(cfg)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(dialogues))
	for i, d := range dialogues {
		t, err := f.Render(d)
		if err != nil {
			return nil, fmt.Errorf("dialogue %d: %w", i, err)
		}
		texts[i] = f.tok.Decode(t.tokens)
	}
	return tokenizer.Train(slices.Values(texts), numMerges, Specials())
}
