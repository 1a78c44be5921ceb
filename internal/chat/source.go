package chat

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"temper/internal/chat/jinja"
)

// chatMLSource is the small ChatML as a chat template, over two variables that
// stand before it: system_prompt and tools_block.
//
//go:embed templates/chatml.jinja
var chatMLSource string

// Source is the format as a chat template in Jinja, for other programs. For the
// messages of a Dialogue it gives the text that Render gives; a system prompt of
// the small ChatML is part of it.
func (f *Format) Source() string { return f.dialect.source(f.system) }

// source returns the template preceded by what the run gives it besides messages: its
// variables, and its system prompt for a conversation without one. Callers that render the
// template may still set either. It is the template itself if there is nothing to give.
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
