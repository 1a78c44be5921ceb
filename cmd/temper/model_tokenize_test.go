package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/chat/tokenizer"
	"temper/internal/cli"
)

// tokenize runs `temper model tokenize` with stdin and returns what it writes.
func tokenize(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := modelTokenizeCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out, errOut bytes.Buffer
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errOut.String(), err
}

// tokenizerDir returns a directory with the tokenizer of the golden ids, with
// old replaced by change.
func tokenizerDir(t *testing.T, old, change string) string {
	t.Helper()
	data, err := os.ReadFile("../../internal/chat/tokenizer/testdata/qwen_tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte(old)) {
		t.Fatalf("the file has no %q", old)
	}
	dir := t.TempDir()
	data = bytes.Replace(data, []byte(old), []byte(change), 1)
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTokenizeThereAndBack(t *testing.T) {
	dir := tokenizerDir(t, "", "")
	const text = "<|im_start|>user\nWe're e\u0301 \U0001f600<|im_end|>\n"
	ids, _, err := tokenize(t, text, dir)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := json.Marshal(tok.EncodeSpecial(text))
	if ids != string(want)+"\n" {
		t.Errorf("ids are %s, want %s", ids, want)
	}
	back, _, err := tokenize(t, ids, dir, "--decode")
	if err != nil || back != strings.ReplaceAll(text, "e\u0301", "\u00e9") {
		t.Errorf("back is %q (%v)", back, err)
	}
	plain, _, err := tokenize(t, text, dir, "--no-special")
	if want, _ := json.Marshal(tok.Encode(text)); err != nil || plain != string(want)+"\n" || plain == ids {
		t.Errorf("plain ids are %s (%v), want %s", plain, err, want)
	}
	if none, _, err := tokenize(t, "", dir); err != nil || none != "[]\n" {
		t.Errorf("no text gives %q (%v)", none, err)
	}
}

func TestTokenizeSaysWhatItIgnores(t *testing.T) {
	dir := tokenizerDir(t, `"truncation":null`, `"truncation":{"max_length":4}`)
	ids, stderr, err := tokenize(t, "one two three four five six", dir)
	if err != nil || len(ids) < 12 || !strings.Contains(stderr, "truncation is ignored") {
		t.Errorf("ids %s, stderr %q, error %v", ids, stderr, err)
	}
}

func TestTokenizeRefusesBadInput(t *testing.T) {
	good := tokenizerDir(t, "", "")
	tests := map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"no file":          {"", []string{t.TempDir()}, "tokenizer.json: no such file"},
		"unknown splitter": {"", []string{tokenizerDir(t, `\\p{N}| `, `\\p{N}+| `)}, "pre_tokenizer.pretokenizers[0].pattern.Regex"},
		"not ids":          {"hello", []string{good, "--decode"}, "stdin is not a JSON array of token ids"},
		"ids of no token":  {"[1,-2,99999]", []string{good, "--decode"}, "ids[1] is -2, want 0 to 925\nids[2] is 99999"},
		"both ways":        {"", []string{good, "--decode", "--no-special"}, "exclude each other"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			stdout, _, err := tokenize(t, c.stdin, c.args...)
			if stdout != "" || cli.ExitCode(err) != cli.ExitUser || !strings.Contains(err.Error(), c.want) {
				t.Errorf("stdout %q, error %v, want a usage error with %q", stdout, err, c.want)
			}
		})
	}
}
