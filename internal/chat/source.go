package chat

import (
	_ "embed"
	"fmt"
	"strings"
	"unicode/utf8"
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

func (d *templated) source(string) string { return d.tmpl.Source() }

func (c *chatML) source(system string) string {
	tools := ""
	if c.toolsInPrompt {
		tools = toolsBlock(c.session)
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
