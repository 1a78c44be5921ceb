package jinja_test

import (
	"encoding/json"
	"os"
	"testing"

	"temper/internal/chat/jinja"
)

// TestReference renders snippets of the language as the reference does.
func TestReference(t *testing.T) {
	data, err := os.ReadFile("../testdata/snippets.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vars  json.RawMessage
		Cases []struct {
			Source, Error string
			Text          *string
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	vars, err := jinja.Decode(file.Vars)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Cases {
		got, err := render(c.Source, vars.(*jinja.Dict))
		switch {
		case c.Text == nil && err == nil:
			t.Errorf("%s\nrendered %q, want error %s", c.Source, got, c.Error)
		case c.Text != nil && err != nil:
			t.Errorf("%s\nerror %v, want %q", c.Source, err, *c.Text)
		case c.Text != nil && got != *c.Text:
			t.Errorf("%s\ngot  %q\nwant %q", c.Source, got, *c.Text)
		}
	}
}

func render(source string, vars *jinja.Dict) (string, error) {
	tmpl, err := jinja.Parse(source)
	if err != nil {
		return "", err
	}
	out, err := tmpl.Render(vars, jinja.Options{})
	return out.Text, err
}
