package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"temper/internal/chat/tokenizer"
	"temper/internal/tool/builtin"
)

// chatML is the small dialect of the built-in recipes. It saves context: it shows
// no system message and no signature of the tool unless a run asks for them.
type chatML struct {
	tok           *tokenizer.Tokenizer
	end           int32
	toolsInPrompt bool
	// functions are the tools beside python, nil for none; python says whether it is
	// there beside them.
	functions *Toolset
	python    bool
	// own reports whether the tools belong to a dialogue, whose schemas are untrusted text.
	own bool
	// block describes the tools to the policy.
	block string
}

var _ dialect = (*chatML)(nil)

// requiredSpecials returns the special tokens that mark where messages and calls
// begin and end. The others may be plain text, as they are for the tokenizers of
// many checkpoints.
func requiredSpecials() []string { return Specials()[:7] }

// useChatML gives the Format the small dialect.
func (f *Format) useChatML(cfg Config) error {
	for _, s := range requiredSpecials() {
		if _, ok := f.tok.Special(s); !ok {
			return fmt.Errorf("tokenizer lacks special token %s", s)
		}
	}
	var functions []FunctionTool
	for _, name := range cfg.Tools {
		tool, ok := builtin.ByName(name)
		switch {
		case !ok || tool.IsProgram() && name != builtin.Python:
			return fmt.Errorf("tool %s needs a chat template: the small format runs programs with %s alone", name, builtin.Python)
		case !tool.IsProgram():
			functions = append(functions, FunctionTool{Name: name, Schema: tool.Schema})
		}
	}
	cfg.Functions = append(functions, cfg.Functions...)
	f.checked = len(cfg.Functions) > 0
	f.end, _ = f.tok.Special(TokenEnd)
	f.pad, _ = f.tok.Special(TokenPad)
	named := slices.Contains(cfg.Tools, builtin.Python)
	c := &chatML{
		tok: f.tok, end: f.end, python: named,
		toolsInPrompt: cfg.ToolsInPrompt || named || len(cfg.Functions) > 0,
		block:         toolsBlock(slices.Contains(cfg.SessionTools, builtin.Python)),
	}
	f.dialect = c
	if len(cfg.Functions) == 0 {
		return nil
	}
	return c.addFunctions(cfg)
}

// addFunctions adds tools beside python.
func (c *chatML) addFunctions(cfg Config) error {
	schemas, err := functionSchemas(cfg.Functions)
	if err != nil {
		return err
	}
	c.functions = &Toolset{}
	if err := c.functions.addFunctions(schemas); err != nil {
		return err
	}
	var lines []string
	if c.python {
		lines = append(lines, pythonSchema(slices.Contains(cfg.SessionTools, builtin.Python)))
	}
	for _, f := range cfg.Functions {
		lines = append(lines, f.Schema)
	}
	c.block = functionsBlock(lines)
	return nil
}

// functionsBlock describes functions to the policy, by a schema on each line.
func functionsBlock(lines []string) string {
	return "# Tools\n\nYou can call the functions described within <tools></tools>:\n<tools>\n" + strings.Join(lines, "\n") + "\n</tools>"
}

func (c *chatML) prompt(system, user string) ([]int32, error) {
	var b builder
	foreign := ""
	if c.toolsInPrompt && c.own {
		system, foreign = strings.TrimPrefix(system+"\n\n", "\n\n"), c.block
	} else if c.toolsInPrompt {
		system = strings.TrimPrefix(system+"\n\n"+c.block, "\n\n")
	}
	if system+foreign != "" {
		b.trusted(TokenStart + "system\n" + system).plain(foreign).trusted(TokenEnd + "\n")
	}
	b.trusted(TokenStart + "user\n").plain(user).trusted(TokenEnd + "\n" + TokenStart + "assistant\n")
	return b.encode(c.tok), nil
}

// textBetweenTurns renders tool responses as one user turn.
func (c *chatML) textBetweenTurns(added []Message) ([]int32, error) {
	var b builder
	b.trusted("\n" + TokenStart + "user")
	for _, m := range added {
		if m.Role == RoleUser {
			b.trusted("\n").plain(m.Content)
			continue
		}
		b.trusted("\n" + TokenToolResult + "\n").plain(m.Content).trusted("\n" + TokenToolResultEnd)
	}
	b.trusted(TokenEnd + "\n" + TokenStart + "assistant\n")
	return b.encode(c.tok), nil
}

func (c *chatML) assistantTurns(d Dialogue) ([][]int32, error) {
	var out [][]int32
	for _, m := range d.Messages {
		if m.Role != RoleAssistant {
			continue
		}
		text, err := c.assistantText(m)
		if err != nil {
			return nil, err
		}
		out = append(out, append(c.tok.EncodeSpecial(text), c.end))
	}
	return out, nil
}

func (c *chatML) assistantText(m Message) (string, error) {
	if c.own {
		return joinCalls(m, func(call ToolCall) (string, error) {
			return renderCall(call.Function.Name, call.Function.Arguments), nil
		})
	}
	return AssistantText(m)
}

func (c *chatML) parseCall(body string) Call {
	if c.functions == nil {
		return parseProgramCall(body)
	}
	var call struct {
		Name string `json:"name"`
	}
	if c.python && json.Unmarshal([]byte(body), &call) == nil && call.Name == builtin.Python {
		return parseProgramCall(body)
	}
	return c.functions.parseCall(body)
}

// parseText finds no calls: in this dialect the tags are always tokens.
func (c *chatML) parseText(text string) ParsedTurn { return ParsedTurn{Content: text} }

func (c *chatML) adaptMessage(m Message) Message { return m }

// toolsBlock describes the tool to the policy.
func toolsBlock(session bool) string {
	return `# Tools

You can call the function described within <tools></tools>:
<tools>
` + pythonSchema(session) + `
</tools>

Write each call as a JSON object within tags:
<tool_call>
{"name": "python", "arguments": {"code": "print(1 + 1)"}}
</tool_call>`
}

// pythonSchema is the signature of the tool.
func pythonSchema(session bool) string {
	note := ""
	if session {
		note = sessionNote
	}
	return `{"name": "python", "description": "Run a Python program and return what it prints, or the error that ended it.` + note + `", "parameters": {"type": "object", "properties": {"code": {"type": "string", "description": "the program"}, "input": {"type": "string", "description": "its standard input"}}, "required": ["code"]}}`
}

// builder joins trusted text, in which special tokens count, and plain text, in which they
// do not. It encodes neighbouring text together, so that the tokens equal the encoding of
// the whole rendering.
type builder struct {
	parts []part
}

type part struct {
	text    string
	trusted bool
}

func (b *builder) trusted(text string) *builder {
	b.parts = append(b.parts, part{text, true})
	return b
}

func (b *builder) plain(text string) *builder {
	b.parts = append(b.parts, part{text, false})
	return b
}

// encode cuts the text at the special tokens of its trusted parts and encodes
// what is between them as plain text.
func (b *builder) encode(tok *tokenizer.Tokenizer) []int32 {
	var ids []int32
	var pending strings.Builder
	flush := func() {
		ids = append(ids, tok.Encode(pending.String())...)
		pending.Reset()
	}
	for _, p := range b.parts {
		if !p.trusted {
			pending.WriteString(p.text)
			continue
		}
		for text, id := range tok.Segments(p.text) {
			pending.WriteString(text)
			if id >= 0 {
				flush()
				ids = append(ids, id)
			}
		}
	}
	flush()
	return ids
}
