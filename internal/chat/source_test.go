package chat_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/chat"
	"temper/internal/chat/jinja"
	"temper/internal/tool/builtin"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const sourceGolden = "testdata/source_golden.json"

// sourceFile holds templates by the name of their format, and conversations.
// testdata/source_check.py asks transformers for the texts of the same file.
type sourceFile struct {
	Sources map[string]string `json:"sources"`
	Cases   []sourceCase      `json:"cases"`
}

// sourceCase is a conversation and the text that its format gives.
type sourceCase struct {
	Name     string          `json:"name"`
	Source   string          `json:"source"` // one of Sources
	Messages json.RawMessage `json:"messages"`
	Prompt   bool            `json:"prompt"` // the text ends where an assistant turn begins
	Text     string          `json:"text"`
}

// sourceFormats are the ways in which a run can use the small ChatML.
func sourceFormats() map[string]chat.Config {
	return map[string]chat.Config{
		"bare":              {},
		"system":            {SystemPrompt: "Be \"brief\" {{ 7*7 }} {% raise %} %} \\n \u00e9\u4e2d\U0001f600\u2028\x7f\t'.\n"},
		"tools":             {ToolsInPrompt: true},
		"system and tools":  {SystemPrompt: "\n\nUse the tool.\n", ToolsInPrompt: true},
		"tools by the name": {Tools: []string{builtin.Python}, SystemPrompt: "x"},
	}
}

// sourceDialogues are conversations with everything that the format can write.
func sourceDialogues() map[string][]chat.Message {
	user := chat.Message{Role: chat.RoleUser, Content: "  What is {{ 2+2 }}? {% x %}\n\u00e9\u2028 <b> 'q' \"q\" \\ "}
	answer := chat.Message{Role: chat.RoleAssistant, Content: "<answer>4</answer>\n"}
	tool := func(text string) chat.Message { return chat.Message{Role: chat.RoleTool, Content: text} }
	call := chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: "print('</tool_call>')\r\n\tx = \"<a> & \u2028\u2029\u00e9\U0001f600\" # \\n \x00\b\f\x1f\x7f"}.Arguments()}
	input := chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: "print(input())", Input: "1 \"2\"\n<x>"}.Arguments()}
	spoken := chat.CallMessage(call, input)
	spoken.Content = "Let me look.\n"
	return map[string][]chat.Message{
		"answer":       {user, answer},
		"own system":   {{Role: chat.RoleSystem, Content: "Mine: \\ \u00e9\n"}, user, answer},
		"empty system": {{Role: chat.RoleSystem}, user, answer},
		"empty":        {{Role: chat.RoleUser}, {Role: chat.RoleAssistant}},
		"calls":        {user, chat.CallMessage(call), tool("4\n"), spoken, tool(""), tool("b\n\u2028"), answer},
		"two turns":    {user, answer, {Role: chat.RoleUser, Content: "And\n3?"}, chat.CallMessage(input), tool("1"), answer},
	}
}

// sourceCases renders every conversation with every format, whole and, from its
// question alone, up to the first turn of the assistant.
func sourceCases(t *testing.T) sourceFile {
	t.Helper()
	out := sourceFile{Sources: map[string]string{}}
	for _, config := range sortedKeys(sourceFormats()) {
		f, err := chat.NewPlain(sourceFormats()[config])
		if err != nil {
			t.Fatal(err)
		}
		out.Sources[config] = f.Source()
		dialogues := sourceDialogues()
		for _, name := range sortedKeys(dialogues) {
			whole, err := f.Render(chat.Dialogue{Messages: dialogues[name]})
			if err != nil {
				t.Fatal(err)
			}
			out.Cases = append(out.Cases, sourceCase{
				Name: name, Source: config, Messages: asTemplateMessages(t, dialogues[name]),
				Text: f.Tokenizer().Decode(whole.Tokens()),
			})
		}
		question := dialogues["answer"][:1]
		out.Cases = append(out.Cases, sourceCase{
			Name: "prompt", Source: config, Messages: asTemplateMessages(t, question), Prompt: true,
			Text: f.Tokenizer().Decode(begin(t, f, question[0].Content).Tokens()),
		})
	}
	return out
}

// TestSourceRendersWhatTheFormatWrites: by our interpreter here, by transformers
// in testdata/source_check.py, which reads the golden file.
func TestSourceRendersWhatTheFormatWrites(t *testing.T) {
	cases := sourceCases(t)
	for _, c := range cases.Cases {
		tmpl, err := chat.NewTemplate(c.Source, cases.Sources[c.Source], nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tmpl.Render(chat.Request{Messages: decodeAs[*jinja.List](t, c.Messages), AddGenerationPrompt: c.Prompt})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got.Text, c.Text); diff != "" {
			t.Errorf("%s of %s: got -, want +\n%s", c.Name, c.Source, diff)
		}
	}
	data, err := json.MarshalIndent(cases, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(sourceGolden, append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(sourceGolden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(data)+"\n", string(golden)); diff != "" {
		t.Errorf("what transformers has confirmed is not what the format writes now: got -, want +\n%.2000s", diff)
	}
}

// TestSourceRefusesOtherRoles: a conversation that the format has no form for
// is an error of the template, too.
func TestSourceRefusesOtherRoles(t *testing.T) {
	tmpl, err := chat.NewTemplate("small", format(t, chat.Config{}).Source(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, messages := range []string{
		`[{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]`, `[{"role": "critic", "content": "a"}]`,
	} {
		if out, err := tmpl.Render(chat.Request{Messages: decodeAs[*jinja.List](t, []byte(messages))}); err == nil {
			t.Errorf("%s: rendered %q", messages, out.Text)
		}
	}
}

// TestSourceOfATemplate is the template itself.
func TestSourceOfATemplate(t *testing.T) {
	tmpl, err := chat.Builtin(chat.FormatRStar2)
	if err != nil {
		t.Fatal(err)
	}
	f, err := chat.NewPlain(chat.Config{Template: tmpl})
	if err != nil {
		t.Fatal(err)
	}
	if f.Source() != tmpl.Source() {
		t.Errorf("source is %.80q", f.Source())
	}
}

// asTemplateMessages writes messages as apply_chat_template takes them: the
// arguments of calls are objects.
func asTemplateMessages(t *testing.T, messages []chat.Message) json.RawMessage {
	t.Helper()
	out := []map[string]any{}
	for _, m := range messages {
		v := map[string]any{"role": m.Role, "content": m.Content}
		calls := []any{}
		for _, c := range m.ToolCalls {
			calls = append(calls, map[string]any{
				"type": "function", "function": map[string]any{"name": c.Function.Name, "arguments": json.RawMessage(c.Function.Arguments)},
			})
		}
		if len(calls) > 0 {
			v["tool_calls"] = calls
		}
		out = append(out, v)
	}
	data, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// TestSourceOfATemplateGivesWhatTheRunGives: a conversation that another program
// renders by the exported template, and by nothing else, has the run's system prompt
// and the run's variables, unless the program brings its own.
func TestSourceOfATemplateGivesWhatTheRunGives(t *testing.T) {
	const question = "What?"
	none := []string{"none"}
	system := "Be \"brief\" {{ 7*7 }} {% raise %} \\n \u00e9\U0001f600.\n"
	vars := map[string]string{"enable_thinking": "false", "depth": "-3", "note": "a \"b\" \\ \u00e9\n"}
	for _, name := range []string{"chatml-thinking", "chatml-tools"} {
		tmpl := loadTemplate(t, name, nil)
		for _, cfg := range []chat.Config{{SystemPrompt: system}, {Vars: vars}, {SystemPrompt: system, Vars: vars}} {
			cfg.Template, cfg.Tools = tmpl, none
			f := bytesFormat(t, cfg)
			exported, err := chat.NewTemplate("exported", f.Source(), nil)
			if err != nil {
				t.Fatal(err)
			}
			render := func(vars *jinja.Dict, messages string) string {
				out, err := exported.Render(chat.Request{Messages: decodeAs[*jinja.List](t, []byte(messages)), Vars: vars, AddGenerationPrompt: true})
				if err != nil {
					t.Fatal(err)
				}
				return out.Text
			}
			want := f.Tokenizer().Decode(begin(t, f, question).Tokens())
			if diff := cmp.Diff(render(nil, `[{"role": "user", "content": "What?"}]`), want); diff != "" {
				t.Errorf("%s: got -, want +\n%s", name, diff)
			}
			cfg.SystemPrompt, cfg.Vars = "Mine.", map[string]string{"enable_thinking": "true"}
			f = bytesFormat(t, cfg)
			own := jinja.NewDict()
			own.Set("enable_thinking", true)
			want = f.Tokenizer().Decode(begin(t, f, question).Tokens())
			if diff := cmp.Diff(render(own, `[{"role": "system", "content": "Mine."}, {"role": "user", "content": "What?"}]`), want); diff != "" {
				t.Errorf("%s with a prompt and a variable of the caller's: got -, want +\n%s", name, diff)
			}
		}
	}
}

// bytesFormat is a format over a tokenizer of bytes.
func bytesFormat(t *testing.T, cfg chat.Config) *chat.Format {
	t.Helper()
	f, err := chat.NewPlain(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
