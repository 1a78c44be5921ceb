package chat_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/chat"
)

func request(t testing.TB, text string) chat.Request {
	t.Helper()
	req, err := chat.ParseRequest([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

const toolTalk = `{"messages": [{"role": "user", "content": "q"},
{"role": "assistant", "content": "<reason>\nr\n</reason>", "tool_calls": [{"type": "function", "function": {"name": "jupyter_code", "arguments": {"code": "1"}}}]},
{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}, {"role": "assistant", "content": "<reason>s</reason><answer>1</answer>"}, {"role": "user", "content": "more?"},
{"role": "assistant", "content": "<reason>n</reason>no"}]}`

func TestCheckAppendOnly(t *testing.T) {
	f := format(t, chat.Config{})
	for name, want := range map[string]bool{chat.FormatRStar2: true, chat.FormatRStar2Released: false} {
		tmpl, err := chat.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		err = chat.CheckAppendOnly(tmpl, f.Tokenizer(), request(t, toolTalk))
		if (err == nil) != want {
			t.Errorf("%s: error %v, want append-only %v", name, err, want)
		}
	}
	// The thinking of an answered question leaves the history of this template.
	tmpl := loadTemplate(t, "chatml-thinking", nil)
	err := chat.CheckAppendOnly(tmpl, nil, request(t, `{"messages": [{"role": "user", "content": "q"},
{"role": "assistant", "content": "<think>\nt\n</think>\n\na"}, {"role": "user", "content": "r"}]}`))
	var growth *chat.GrowthError
	if !errors.As(err, &growth) {
		t.Fatalf("error %v, want a GrowthError", err)
	}
	at := len("<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n")
	if growth.Messages != 3 || growth.Offset != at || !strings.HasPrefix(growth.Had, "<think>") || !strings.HasPrefix(growth.Got, "a<|im_end|>") {
		t.Errorf("%+v, want the difference at byte %d with 3 messages", growth, at)
	}
}

func TestLoadTemplate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hello := request(t, `{"messages": [{"role": "user", "content": "x"}]}`)
	try := func(want, name string, tools bool) {
		t.Helper()
		tmpl, err := chat.LoadTemplate(dir, name, tools)
		if err != nil {
			if want == "" || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
			return
		}
		if got, err := tmpl.Render(hello); err != nil || got.Text != want {
			t.Errorf("rendered %q, error %v, want %q", got.Text, err, want)
		}
	}
	try("has no chat template", "", false)
	write("tokenizer_config.json", `{"bos_token": {"content": "<s>"}, "eos_token": null, "chat_template": "{{ bos_token }}{{ eos_token }}1"}`)
	try("<s>1", "", true)
	write("tokenizer_config.json", `{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}`)
	try("d", "", false)
	try("t", "", true)
	try("d", "default", true)
	try(`no chat template "rag", only default, tool_use`, "rag", true)
	write("tokenizer_config.json", `{"chat_template": [{"name": "default"}]}`)
	try("chat_template[0] must have name and template", "", false)
	write("tokenizer_config.json", `{"chat_template": 3}`)
	try("chat_template must be a string or a list", "", false)
	write("tokenizer_config.json", `{`)
	try("tokenizer_config.json: unexpected end", "", false)
	write("tokenizer_config.json", `{"bos_token": "<b>"}`)
	write("chat_template.jinja", "{{ bos_token }}file\n")
	try("<b>file", "", false)
	write("chat_template.jinja", "{% if %}")
	try("line 1: expected an expression", "", false)
}

func TestParseRequestReportsAllProblems(t *testing.T) {
	_, err := chat.ParseRequest([]byte(`{"messages": 1, "tools": {}, "add_generation_prompt": "yes"}`))
	for _, want := range []string{"messages", "tools", "add_generation_prompt"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one of %s", err, want)
		}
	}
	for _, bad := range []string{`[]`, `{`, `{}`, `{"messages": []} x`, "{\"messages\": [\"\xff\"]}"} {
		if _, err := chat.ParseRequest([]byte(bad)); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}
