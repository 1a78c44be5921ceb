package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"temper/internal/chat/jinja"
	"temper/internal/tool/builtin"
)

// Adapt rewrites a dialogue of the built-in teachers for this format. The teachers
// write the small ChatML; the result uses the tool of the format, its form of
// answers, and the words with which its generation prompt opens a turn.
func (f *Format) Adapt(d Dialogue) Dialogue {
	out := Dialogue{Messages: make([]Message, len(d.Messages))}
	for i, m := range d.Messages {
		if m.Role == RoleAssistant {
			if f.boxed {
				m.Content = boxAnswers(m.Content)
			}
			m = f.dialect.adaptMessage(m)
		}
		out.Messages[i] = m
	}
	return out
}

// boxAnswers puts each answer between the tags into \boxed{}.
func boxAnswers(text string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, TokenAnswer)
		answer, after, closed := strings.Cut(rest, TokenAnswerEnd)
		if !found || !closed {
			return b.String() + text
		}
		b.WriteString(before + TokenAnswer + `\boxed{` + answer + "}" + TokenAnswerEnd)
		text = after
	}
}

// ownTools returns the tools that a dialogue brings along, nil for none.
func (d Dialogue) ownTools() (*Toolset, error) {
	if d.Tools == nil {
		return nil, nil //nolint:nilnil // a dialogue without tools is no error
	}
	schemas, err := schemaList(d.Tools)
	if err != nil {
		return nil, err
	}
	tools, err := NewToolset(schemas)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	return tools, nil
}

// schemaList decodes schemas and puts {"type": "function", "function": ...} around those
// that lack it: the form that templates expect.
func schemaList(tools []json.RawMessage) (*jinja.List, error) {
	out := &jinja.List{}
	for i, text := range tools {
		v, err := jinja.Decode(text)
		if err != nil {
			return nil, fmt.Errorf("tools[%d]: %w", i, err)
		}
		schema, ok := v.(*jinja.Dict)
		if !ok {
			return nil, fmt.Errorf("tools[%d]: want an object", i)
		}
		if _, wrapped := schema.Get("function"); !wrapped {
			outer := jinja.NewDict()
			outer.Set("type", "function")
			outer.Set("function", schema)
			schema = outer
		}
		out.Items = append(out.Items, schema)
	}
	return out, nil
}

// checkDialogueCalls reports calls that are none of the tools, or whose arguments are no
// object. Arguments need not fit the schema: data sets are not that exact.
func (ts *Toolset) checkDialogueCalls(calls []ToolCall) error {
	for i, c := range calls {
		if ts.findTool(c.Function.Name) == nil {
			return fmt.Errorf("tool call %d: the dialogue has no tool %.60q", i, c.Function.Name)
		}
		v, err := jinja.Decode([]byte(c.Function.Arguments))
		if err != nil {
			return fmt.Errorf("tool call %d: arguments are no JSON: %w", i, err)
		}
		if _, ok := v.(*jinja.Dict); !ok {
			return fmt.Errorf("tool call %d: arguments are no JSON object", i)
		}
	}
	return nil
}

// withTools returns the format with the tools of a dialogue instead of its own, or the
// format itself for a dialogue without tools.
func (f *Format) withTools(d Dialogue) (*Format, error) {
	if d.Tools == nil {
		return f, nil
	}
	schemas, err := schemaList(d.Tools)
	if err != nil {
		return nil, err
	}
	tools, err := NewToolset(schemas)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	out := *f
	if out.dialect, err = withTools(f.dialect, schemas, tools); err != nil {
		return nil, err
	}
	return &out, nil
}

// withTools returns a dialect with other tools.
func withTools(d dialect, schemas *jinja.List, tools *Toolset) (dialect, error) {
	if small, ok := d.(*chatML); ok {
		return small.withTools(schemas, tools)
	}
	t, ok := d.(*templated)
	if !ok {
		return nil, fmt.Errorf("a dialogue with tools of its own, and a dialect %T", d)
	}
	return templatedWithTools(*t, schemas, tools)
}

func templatedWithTools(d templated, schemas *jinja.List, tools *Toolset) (dialect, error) {
	out := d
	out.schemas, out.tools = nil, nil
	if len(tools.tools) == 0 {
		return &out, nil
	}
	shielded, err := shieldValue(d.tok, schemas)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	list, ok := shielded.(*jinja.List)
	if !ok {
		return nil, errors.New("tools are no list")
	}
	out.schemas, out.tools = list, tools
	return &out, nil
}

// withTools returns a dialect whose prompt shows the schemas of a dialogue.
func (c *chatML) withTools(schemas *jinja.List, tools *Toolset) (dialect, error) {
	out := *c
	out.python, out.own, out.functions = false, true, tools
	out.block, out.toolsInPrompt = "", len(tools.tools) > 0
	if !out.toolsInPrompt {
		return &out, nil
	}
	var lines []string
	for _, v := range schemas.Items {
		schema, _ := v.(*jinja.Dict)
		function, _ := schema.Get("function")
		line, err := jinja.Encode(function)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		lines = append(lines, line)
	}
	out.block = functionsBlock(lines)
	return &out, nil
}

// Fit makes a dialogue of a file fit the format as far as that changes no meaning: a turn
// gets the opening that the generation prompt writes, such as <reason>, and calls of the
// tool python are renamed to the tool of the format. changed says whether it had to.
func (f *Format) Fit(d Dialogue) (out Dialogue, changed bool) {
	out = d
	out.Messages = nil
	for _, m := range d.Messages {
		fitted := m
		if m.Role == RoleAssistant {
			fitted = fitMessage(f.dialect, m, d.Tools != nil)
		}
		changed = changed || !sameMessage(m, fitted)
		out.Messages = append(out.Messages, fitted)
	}
	if !changed {
		return d, false
	}
	return out, true
}

func sameMessage(a, b Message) bool {
	if a.Content != b.Content || len(a.ToolCalls) != len(b.ToolCalls) {
		return false
	}
	for i := range a.ToolCalls {
		if a.ToolCalls[i] != b.ToolCalls[i] {
			return false
		}
	}
	return true
}

// fitMessage changes a message of the assistant as little as possible, so that it can be
// rendered; ownTools says that its dialogue brings its tools along.
func fitMessage(in dialect, m Message, ownTools bool) Message {
	d, ok := in.(*templated)
	if !ok {
		return m
	}
	adapted := d.adaptMessage(m)
	if ownTools || d.tools == nil || d.tools.findTool(builtin.Python) != nil {
		adapted.ToolCalls = m.ToolCalls
	}
	return adapted
}
