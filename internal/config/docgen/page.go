package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"temper/internal/config"
)

// configurationIntro is the part of the page that no declaration says.
//
//go:embed configuration.intro.md
var configurationIntro string

// variable is a field of config.Process.
type variable struct{ name, standard, about string }

// process lists the places that the environment names.
func (c comments) process() ([]variable, error) {
	t := reflect.TypeFor[config.Process]()
	var out []variable
	for i := range t.NumField() {
		f := t.Field(i)
		about, err := c.ofField(t, f)
		if err != nil {
			return nil, err
		}
		out = append(out, variable{f.Tag.Get("env"), f.Tag.Get("default"), about})
	}
	return out, nil
}

// configurationPage is docs/configuration.md.
func configurationPage(sections []*section, process []variable) []byte {
	var b bytes.Buffer
	b.WriteString(configurationIntro)
	for _, s := range sections {
		title := "`" + s.path + "`"
		if s.path == "" {
			title = "The whole"
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", title, marked(s.about))
		b.WriteString("| key | type | default | values | amend | description |\n|---|---|---|---|---|---|\n")
		for _, k := range s.keys {
			row(&b, "`"+k.name+"`", k.typeCell(), k.standardCell(), k.allowed(), k.amendCell(), marked(k.about))
		}
	}
	b.WriteString("\n## Places\n\nWhere the parts of a service are is no part of a run. Each command has flags for it (`--help`), over these variables:\n\n" +
		"| variable | default | description |\n|---|---|---|\n")
	for _, v := range process {
		row(&b, "`"+v.name+"`", code(v.standard), marked(v.about))
	}
	return b.Bytes()
}

// typeCell is the type, with a link where it is a section.
func (k key) typeCell() string {
	if k.below == nil {
		return k.typeAndUnit()
	}
	return fmt.Sprintf("[%s](#%s)", k.kind(), anchor(k.below.path))
}

// standardCell is the default, or in plain words what an empty text means.
func (k key) standardCell() string {
	meaning := k.field.Tag.Get("empty")
	values, _ := config.EnumOf(k.field.Tag)
	if k.standard() == meaning && !slices.Contains(values, meaning) {
		return meaning
	}
	return code(k.standard())
}

// anchor is the fragment that a heading gets. It has no capitals.
func anchor(heading string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if strings.ContainsRune(".[]`", r) {
			return -1
		}
		return r
	}, heading))
}

func (k key) amendCell() string {
	switch {
	case k.below != nil:
		return ""
	case k.amendable():
		return "yes"
	default:
		return "no"
	}
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// literal matches the parts of descriptions that Markdown would change: keys, file names
// and tags.
var literal = regexp.MustCompile(`--[a-z]+|</?[a-z]+>|\\[a-z]+\{\}|[A-Za-z][A-Za-z0-9]*([._][A-Za-z0-9]+)+(@[0-9]+)?`)

// marked puts backquotes around literals.
func marked(text string) string { return literal.ReplaceAllString(text, "`$0`") }

// row writes a row of a table.
func row(b *bytes.Buffer, cells ...string) {
	for _, cell := range cells {
		b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
	}
	b.WriteString("|\n")
}
