package chat

import (
	"encoding/json"
	"fmt"
	"slices"

	"temper/internal/tokenizer"
)

// Roles of messages.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Message is one message of a training dialogue in the OpenAI form. The content
// of system and assistant messages is trusted: special tokens in it count, so a
// malformed call is written literally.
type Message struct {
	Role      string     `json:"role"`
	Content   string     `json:"content,omitempty"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
}

// ToolCall is a well-formed call of an assistant message.
type ToolCall struct {
	Type     string   `json:"type,omitempty"` // "function"
	Function Function `json:"function"`
}

// Function names the tool; Arguments is a JSON object in a string.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Dialogue is one training conversation.
type Dialogue struct {
	Messages []Message `json:"messages"`
}

// CallMessage returns the assistant message that makes the given calls.
func CallMessage(calls ...Call) Message {
	m := Message{Role: RoleAssistant}
	for _, c := range calls {
		args := `{"code": ` + quote(c.Code)
		if c.Input != "" {
			args += `, "input": ` + quote(c.Input)
		}
		m.ToolCalls = append(m.ToolCalls, ToolCall{Type: "function", Function: Function{Name: c.Name, Arguments: args + "}"}})
	}
	return m
}

// AssistantText returns the text of an assistant message as a policy would
// sample it, without the final end token.
func AssistantText(m Message) (string, error) {
	text := m.Content
	for i, c := range m.ToolCalls {
		if !json.Valid([]byte(c.Function.Arguments)) {
			return "", fmt.Errorf("tool call %d: arguments are no JSON; write a malformed call as content", i)
		}
		call := parseCall(`{"name": ` + quote(c.Function.Name) + `, "arguments": ` + c.Function.Arguments + `}`)
		if call.Malformed != "" {
			return "", fmt.Errorf("tool call %d: %s", i, call.Malformed)
		}
		if text != "" {
			text += "\n"
		}
		text += RenderCall(call)
	}
	return text, nil
}

// Validate reports what Render would refuse. Order of roles: an optional
// system, then user, assistant, and after it tool results or a user message; the
// last one is of the assistant.
func (d Dialogue) Validate() error {
	_, messages := d.split()
	previous := ""
	for i, m := range messages {
		if !follows(m.Role, previous) {
			return fmt.Errorf("message %d of role %q after %q", len(d.Messages)-len(messages)+i, m.Role, previous)
		}
		if m.Role == RoleAssistant {
			if _, err := AssistantText(m); err != nil {
				return fmt.Errorf("message %d: %w", len(d.Messages)-len(messages)+i, err)
			}
		}
		previous = m.Role
	}
	if previous != RoleAssistant {
		return fmt.Errorf("the last message is of role %q, want %q", previous, RoleAssistant)
	}
	return nil
}

func follows(role, previous string) bool {
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

// split cuts the system message off, nil when there is none.
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
	first, messages := d.split()
	system := f.system
	if first != nil {
		system = first.Content
	}
	t := f.begin(system, messages[0].Content)
	for i := 1; i < len(messages); i++ {
		switch m := messages[i]; m.Role {
		case RoleAssistant:
			if err := t.appendAssistant(m); err != nil {
				return nil, fmt.Errorf("render dialogue: %w", err)
			}
		case RoleUser:
			t.appendMasked(f.userTokens(m.Content))
		case RoleTool:
			last := lastTool(messages, i)
			t.appendMasked(f.toolTokens(contents(messages[i:last])))
			i = last - 1
		}
	}
	return t, nil
}

// lastTool returns the end of the run of tool messages that starts at i.
func lastTool(messages []Message, i int) int {
	for i < len(messages) && messages[i].Role == RoleTool {
		i++
	}
	return i
}

func contents(messages []Message) []string {
	var out []string
	for _, m := range messages {
		out = append(out, m.Content)
	}
	return out
}

func (t *Transcript) appendAssistant(m Message) error {
	text, err := AssistantText(m)
	if err != nil {
		return err
	}
	tokens := append(t.format.tok.EncodeSpecial(text), t.format.end)
	return t.AppendSampled(tokens, make([]float32, len(tokens)))
}

// TrainTokenizer learns a tokenizer with all Specials from the very texts that
// Render of the dialogues will encode.
func TrainTokenizer(cfg Config, dialogues []Dialogue, numMerges int) (*tokenizer.Tokenizer, error) {
	plain, err := tokenizer.Train(slices.Values([]string(nil)), 0, Specials())
	if err != nil {
		return nil, err
	}
	f, err := New(plain, cfg)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(dialogues))
	for i, d := range dialogues {
		t, err := f.Render(d)
		if err != nil {
			return nil, fmt.Errorf("dialogue %d: %w", i, err)
		}
		texts[i] = plain.Decode(t.tokens)
	}
	return tokenizer.Train(slices.Values(texts), numMerges, Specials())
}
