package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/env"
	"temper/internal/rl"
)

// dataIntro is the part of the page that no declaration says.
//
//go:embed data.intro.md
var dataIntro string

// dataPage is docs/data.md.
func (c comments) dataPage() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(dataIntro)
	b.WriteString("\n## Problems\n\nA stage trains on problems: `stages[].data.path`. One line is one problem.\n\n")
	if err := c.fields(&b, reflect.TypeFor[rl.Problem](), ""); err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, "\nThe environment decides what counts as right: %s.\n", strings.Join(env.Names(), ", "))
	if err := problemExamples(&b); err != nil {
		return nil, err
	}
	b.WriteString("\n## Dialogues\n\nSFT trains on dialogues: `sft.data.path`. One line is one dialogue.\n\n")
	if err := c.fields(&b, reflect.TypeFor[chat.Dialogue](), ""); err != nil {
		return nil, err
	}
	b.WriteString("\nA dialogue has an optional system message, then messages of user and assistant in turn; the results of tool calls stand after the\n" +
		"assistant message that made them. The last message is the assistant's. The loss covers the assistant messages and nothing else.\n" +
		"A dialogue with `tools` shows these and not the run's, may call any of them, and runs none.\n")
	err := dialogueExample(&b)
	return b.Bytes(), err
}

// fields writes the table of the fields of a JSON object, those of inner ones below
// them.
func (c comments) fields(b *bytes.Buffer, t reflect.Type, path string) error {
	if path == "" {
		b.WriteString("| field | type | required | description |\n|---|---|---|---|\n")
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		about, err := c.ofField(t, f)
		if err != nil {
			return err
		}
		at, inner, kind, required := path+name, f.Type, "object", "yes"
		switch f.Type.Kind() {
		case reflect.Slice:
			at, inner, kind = at+"[]", f.Type.Elem(), "list of objects"
		case reflect.Struct:
		default:
			kind = wordOf(f.Type)
		}
		if strings.Contains(options, "omitempty") {
			required = "no"
		}
		row(b, "`"+path+name+"`", kind, required, marked(about))
		if inner.Kind() == reflect.Struct {
			if err := c.fields(b, inner, at+"."); err != nil {
				return err
			}
		}
	}
	return nil
}

// problemExamples writes one generated problem of each environment.
func problemExamples(b *bytes.Buffer) error {
	b.WriteString("\n```jsonl\n")
	for _, name := range env.Names() {
		problems, err := dataset.Problems(config.Source{Env: name, Levels: []int{2}, Num: 1}, 1, env.Train)
		if err != nil {
			return err
		}
		if err := dataset.Write(b, problems); err != nil {
			return err
		}
	}
	b.WriteString("```\n")
	return nil
}

// dialogueExample writes one generated dialogue with a tool call, over several lines.
func dialogueExample(b *bytes.Buffer) error {
	dialogues, err := dataset.Dialogues(config.Source{Env: "chase", Levels: []int{1}, Num: 20}, 1)
	if err != nil {
		return err
	}
	for _, d := range dialogues {
		if len(d.Messages) != 4 {
			continue
		}
		b.WriteString("\nHere over several lines, to read; in a file it is one line:\n\n```json\n")
		enc := json.NewEncoder(b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(d); err != nil {
			return err
		}
		b.WriteString("```\n")
		return nil
	}
	return fmt.Errorf("no dialogue with one call among %d", len(dialogues))
}
