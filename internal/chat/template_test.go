package chat_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/chat"
	"temper/internal/chat/jinja"
)

// goldenFile is what the reference rendered; see testdata/golden.py.
type goldenFile struct {
	Tokens    map[string]string
	Tools     json.RawMessage
	Date      string
	Dialogues map[string]json.RawMessage
	Cases     []goldenCase
}

type goldenCase struct {
	Name, Template string
	Tools          bool
	Flags          json.RawMessage
	Messages       json.RawMessage
	Text           *string
	Error          string
}

func golden(t testing.TB) goldenFile {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g goldenFile
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func decodeAs[T any](t testing.TB, data []byte) T {
	t.Helper()
	v, err := jinja.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return v.(T)
}

func (g goldenFile) request(t testing.TB, c goldenCase) chat.Request {
	t.Helper()
	if c.Messages == nil {
		c.Messages = g.Dialogues[c.Name]
	}
	req := chat.Request{Messages: decodeAs[*jinja.List](t, c.Messages), Vars: decodeAs[*jinja.Dict](t, c.Flags)}
	if c.Tools {
		req.Tools = decodeAs[*jinja.List](t, g.Tools)
	}
	prompt, _ := req.Vars.Get("add_generation_prompt")
	final, _ := req.Vars.Get("continue_final_message")
	req.AddGenerationPrompt, req.ContinueFinalMessage = prompt == true, final == true
	req.Vars.Set("date_string", g.Date)
	return req
}

func loadTemplate(t testing.TB, name string, tokens map[string]string) *chat.Template {
	t.Helper()
	source, err := os.ReadFile("testdata/templates/" + name + ".jinja")
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := chat.NewTemplate(name, string(source), tokens)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

// TestTemplatesRenderAsTheReference compares every golden case byte for byte.
func TestTemplatesRenderAsTheReference(t *testing.T) {
	g := golden(t)
	for _, c := range g.Cases {
		t.Run(c.Template+"/"+c.Name, func(t *testing.T) {
			got, err := loadTemplate(t, c.Template, g.Tokens).Render(g.request(t, c))
			switch {
			case c.Text == nil && err == nil:
				t.Errorf("rendered %q, want error %s", got.Text, c.Error)
			case c.Text != nil && err != nil:
				t.Error(err)
			case c.Text != nil:
				if diff := cmp.Diff(got.Text, *c.Text); diff != "" {
					t.Errorf("got -, want +\n%s", diff)
				}
			}
		})
	}
}
