package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
	"temper/internal/cli"
)

// renderDir is a checkpoint directory with a template and a small tokenizer.
func renderDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	tok, err := tokenizer.Train(slices.Values([]string{"hello hello"}), 4, chat.Specials())
	if err != nil {
		t.Fatal(err)
	}
	if err := tok.Save(filepath.Join(dir, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	config := `{"eos_token": "<|im_end|>", "chat_template": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + eos_token }}{% endfor %}{% if wanted %}{{ wanted }}{% endif %}"}`
	if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestModelRender(t *testing.T) {
	dir := renderDir(t)
	run := func(input string, args ...string) (string, error) {
		cmd := modelRenderCommand()
		var out bytes.Buffer
		cmd.SetArgs(append(args, dir))
		cmd.SetIn(strings.NewReader(input))
		cmd.SetOut(&out)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err := cmd.Execute()
		return out.String(), err
	}
	const input, text = `{"messages": [{"role": "user", "content": "hello"}], "wanted": "x"}`, "<|im_start|>user\nhello<|im_end|>x"
	got, err := run(input)
	if err != nil || got != text {
		t.Errorf("printed %q, error %v, want %q", got, err, text)
	}
	got, err = run(input, "--ids")
	if err != nil {
		t.Fatal(err)
	}
	var ids []int32
	if err := json.Unmarshal([]byte(got), &ids); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, tok.EncodeSpecial(text)) {
		t.Errorf("ids %v decode to %q, want %q", ids, tok.Decode(ids), text)
	}
	if got, err = run(input, "--format", "rstar2"); err != nil || !strings.Contains(got, `\boxed{}`) {
		t.Errorf("printed %q, error %v, want the built-in prompt", got, err)
	}
	if _, err = run(`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "wanted": "x"}`, "--check-append-only"); err == nil || !strings.Contains(err.Error(), "not append-only") {
		t.Errorf("error %v, want that the template is not append-only", err)
	}
	for want, bad := range map[string][]string{
		"messages is missing":        {`{}`},
		"unexpected":                 {`{`},
		"no chat template \"x\"":     {input, "--template", "x"},
		"no built-in chat format":    {input, "--format", "x"},
		"want a day":                 {input, "--date", "1"},
		"unsupported operand types":  {`{"messages": [{"role": "user", "content": null}]}`},
		"message 0 is no object":     {`{"messages": [1]}`},
		"nested deeper than":         {strings.Repeat("[", 1000)},
		"messages has the wrong typ": {`{"messages": {}}`},
	} {
		if out, err := run(bad[0], bad[1:]...); err == nil || !strings.Contains(err.Error(), want) || cli.ExitCode(err) != cli.ExitUser || out != "" {
			t.Errorf("%q: printed %q, error %v, want %q", bad, out, err, want)
		}
	}
}
