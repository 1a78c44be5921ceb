package chat

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"temper/internal/chat/jinja"
)

// Template is the chat template of a checkpoint, rendered as Hugging Face's
// apply_chat_template renders it. It is immutable and safe for concurrent use.
type Template struct {
	name   string
	source string
	jinja  *jinja.Template
	tokens map[string]string // bos_token, eos_token, ...
}

// Request is the input of a template. Its values are JSON values with their members
// in order; a render does not change them.
type Request struct {
	Messages *jinja.List // of *jinja.Dict
	Tools    *jinja.List // of JSON schemas; nil for none
	// Vars are further variables, such as enable_thinking; nil for none.
	Vars *jinja.Dict
	// AddGenerationPrompt ends the text with the start of an assistant turn.
	AddGenerationPrompt bool
	// ContinueFinalMessage ends the text inside the last message.
	ContinueFinalMessage bool
	// Now is the date for templates that print one.
	Now time.Time
}

// Rendered is the text of a Request.
type Rendered struct {
	Text string
	// Generated are the byte ranges of {% generation %} blocks.
	Generated [][2]int
}

// continueMark marks the end of the message to continue during the render.
const continueMark = "CONTINUE_FINAL_MESSAGE_TAG "

// NewTemplate parses a template. tokens maps names in tokenizer_config.json to the
// special tokens that the template may use by these names.
func NewTemplate(name, source string, tokens map[string]string) (*Template, error) {
	t, err := jinja.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("chat template %s: %w", name, err)
	}
	return &Template{name: name, source: source, jinja: t, tokens: tokens}, nil
}

// Name says where the template comes from.
func (t *Template) Name() string { return t.name }

// Source is the text of the template.
func (t *Template) Source() string { return t.source }

// Render returns the text of a conversation. An exception that the template raises
// is a *jinja.Exception.
func (t *Template) Render(req Request) (Rendered, error) {
	vars, final, err := t.renderVars(req)
	if err != nil {
		return Rendered{}, fmt.Errorf("chat template %s: %w", t.name, err)
	}
	out, err := t.jinja.Render(vars, jinja.Options{Now: req.Now})
	if err != nil {
		return Rendered{}, fmt.Errorf("chat template %s: %w", t.name, err)
	}
	if req.ContinueFinalMessage {
		if out.Text, err = cutAtMark(out.Text, final); err != nil {
			return Rendered{}, fmt.Errorf("chat template %s: %w", t.name, err)
		}
	}
	return Rendered(out), nil
}

// renderVars returns the variables of a render and the text of the message to continue.
func (t *Template) renderVars(req Request) (vars *jinja.Dict, final string, err error) {
	vars = jinja.NewDict()
	for _, name := range slices.Sorted(keysOf(t.tokens)) {
		vars.Set(name, t.tokens[name])
	}
	if req.Vars != nil {
		for _, e := range req.Vars.Entries() {
			vars.Set(fmt.Sprint(e.Key), e.Value)
		}
	}
	messages, err := aliasReasoning(req.Messages)
	if err != nil {
		return nil, "", err
	}
	if req.ContinueFinalMessage {
		if req.AddGenerationPrompt {
			return nil, "", errors.New("continue_final_message and add_generation_prompt exclude each other")
		}
		if final, err = t.markFinalMessage(messages); err != nil {
			return nil, "", err
		}
	}
	vars.Set("messages", messages)
	vars.Set("tools", nil)
	if req.Tools != nil {
		vars.Set("tools", req.Tools)
	}
	if _, given := vars.Get("documents"); !given {
		vars.Set("documents", nil)
	}
	vars.Set("add_generation_prompt", req.AddGenerationPrompt)
	return vars, final, nil
}

func keysOf(m map[string]string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// aliasReasoning copies the reasoning of each message to all names under which
// templates look for it, as Hugging Face does.
func aliasReasoning(messages *jinja.List) (*jinja.List, error) {
	if messages == nil {
		return nil, errors.New("no messages")
	}
	out := &jinja.List{}
	for i, v := range messages.Items {
		m, ok := v.(*jinja.Dict)
		if !ok {
			return nil, fmt.Errorf("message %d is no object", i)
		}
		for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
			if reasoning, _ := m.Get(name); reasoning != nil {
				aliased := jinja.NewDict()
				aliased.Set("thinking", reasoning)
				for _, e := range m.Entries() {
					aliased.Set(fmt.Sprint(e.Key), e.Value)
				}
				aliased.Set("reasoning_content", reasoning)
				m = aliased
				break
			}
		}
		out.Items = append(out.Items, m)
	}
	return out, nil
}

// markFinalMessage appends continueMark to the text of the last message and returns
// the text without it. It changes the list, not the message.
func (t *Template) markFinalMessage(messages *jinja.List) (string, error) {
	if len(messages.Items) == 0 {
		return "", errors.New("continue_final_message: the conversation is empty")
	}
	last := messages.Items[len(messages.Items)-1].(*jinja.Dict).Clone()
	messages.Items[len(messages.Items)-1] = last
	if !strings.Contains(t.source, "content") {
		return "", errors.New("continue_final_message: the template reads no content")
	}
	switch content, _ := last.Get("content"); c := content.(type) {
	case string:
		last.Set("content", c+continueMark)
		return c, nil
	case *jinja.List:
		parts := &jinja.List{Items: slices.Clone(c.Items)}
		for i, v := range slices.Backward(parts.Items) {
			part, ok := v.(*jinja.Dict)
			if !ok {
				continue
			}
			if text, ok := part.Get("text"); ok {
				part = part.Clone()
				part.Set("text", fmt.Sprint(text)+continueMark)
				parts.Items[i] = part
				last.Set("content", parts)
				return fmt.Sprint(text), nil
			}
		}
	}
	return "", errors.New("continue_final_message: the last message has no text to continue")
}

// cutAtMark cuts the text where the message to continue ends. Where the template has
// trimmed the message, it also trims the white space that the template put there.
func cutAtMark(text, final string) (string, error) {
	at := strings.LastIndex(text, strings.TrimSpace(continueMark))
	if at < 0 || !strings.Contains(text, strings.TrimSpace(final)) {
		return "", errors.New("continue_final_message: the template leaves the final message out or changes it")
	}
	if strings.HasPrefix(text[at:], continueMark) {
		return text[:at], nil
	}
	return strings.TrimRight(text[:at], " \t\n\r\f\v"), nil
}

// chatMLSource is the small ChatML as a chat template, over two variables that
// stand before it: system_prompt and tools_block.
//
//go:embed templates/chatml.jinja
var chatMLSource string

// Source is the format as a chat template in Jinja, for other programs. For the
// messages of a Dialogue it gives the text that Render gives; a system prompt of
// the small ChatML is part of it.
func (f *Format) Source() string { return f.dialect.source(f.system) }

// source is the template behind what the run gives it besides messages: its variables,
// and its system prompt for a conversation without one. Whoever renders the template
// may still set either. It is the template itself where there is nothing to give.
func (d *templated) source(system string) string {
	var b strings.Builder
	for _, v := range d.vars.Entries() {
		name := fmt.Sprint(v.Key)
		fmt.Fprintf(&b, "{%%- if %s is not defined %%}{%%- set %s = %s %%}{%%- endif %%}\n", name, name, jinjaLiteral(v.Value))
	}
	if system != "" {
		fmt.Fprintf(&b, "{%%- if not messages or messages[0].role != 'system' %%}"+
			"{%%- set messages = [{'role': 'system', 'content': %s}] + messages %%}{%%- endif %%}\n", jinjaString(system))
	}
	return b.String() + d.tmpl.Source() // a line of nothing but tags leaves no text
}

// jinjaLiteral writes a variable of a template as the template language has it.
func jinjaLiteral(v jinja.Value) string {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	default:
		return jinjaString(fmt.Sprint(v))
	}
}

func (c *chatML) source(system string) string {
	tools := ""
	if c.toolsInPrompt {
		tools = c.block
	}
	return fmt.Sprintf("{%%- set system_prompt = %s %%}\n{%%- set tools_block = %s %%}\n%s",
		jinjaString(system), jinjaString(tools), strings.TrimSuffix(chatMLSource, "\n"))
}

// jinjaString writes text as a string of the template language. Only printable
// ASCII stands for itself, because readers differ in the rest.
func jinjaString(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r >= ' ' && r < utf8.RuneSelf && r != 0x7f:
			b.WriteRune(r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
