//go:build integration

package main_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"temper/internal/chat"
	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
	"temper/internal/openai"
	"temper/internal/proc/testbin"
	"temper/internal/tool/builtin"
)

// scriptedModel serves a model that runs a program for each question but "slow?", which it
// answers for ever, and then says what came out, with an escape sequence.
func scriptedModel(t *testing.T) (url string) {
	t.Helper()
	tok, err := chat.TrainTokenizer(chat.Config{}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	format, err := chat.New(tok, chat.Config{})
	if err != nil {
		t.Fatal(err)
	}
	template, err := chat.NewTemplate("test", format.Source(), nil)
	if err != nil {
		t.Fatal(err)
	}
	end := format.Stop()[0]
	script := &inferencetest.Script{Context: 20000, Reply: func(r inference.Request) []int32 {
		context := tok.Decode(r.Tokens)
		at := strings.LastIndex(context, "assistant\n") + len("assistant\n")
		before := context[:at]
		said := "<reason>I count.</reason>\n" + chat.RenderCall(chat.Call{Name: "python", Arguments: builtin.Program{Code: "import os\nprint(base + 1, os.listdir('/'), input())", Input: "in"}.Arguments()})
		last := before[strings.LastIndex(before, "user\n"):]
		switch {
		case strings.Contains(last, "slow?"):
			time.Sleep(time.Millisecond)
			return slices.Repeat(tok.EncodeSpecial("."), r.MaxTokens)
		case strings.Contains(last, "<tool_response>"):
			said = "done \x1b[2J"
		}
		whole := append(tok.EncodeSpecial(said), end)
		return whole[min(len(tok.EncodeSpecial(context[at:])), len(whole)-1):]
	}}
	api, err := openai.New(openai.Model{Name: "scripted", Engine: script, Tokenizer: tok, Template: template, Stop: []int32{end}, Temperature: 1}, openai.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(api)
	t.Cleanup(s.Close)
	return s.URL
}

// lockedBuffer keeps what a process says while a test reads it.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestChat: one question, whose program runs in a sandbox that has its file system of its
// own; then a talk, in which ctrl-c cuts an answer that does not end.
func TestChat(t *testing.T) {
	url := scriptedModel(t)
	fixture := filepath.Join(t.TempDir(), "base.py")
	if err := os.WriteFile(fixture, []byte("base = 41\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	temper := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "temper"), append([]string{"chat", "--url", url, "--fixture", fixture}, args...)...)
		cmd.Env = testbin.Environment()
		return cmd
	}
	out, err := temper("--prompt", "41+1?", "--json").Output()
	var record struct {
		Answer, Finish string
		Calls          []struct{ Status, Content string }
	}
	if err != nil || json.Unmarshal(out, &record) != nil || record.Finish != "stop" || len(record.Calls) != 1 {
		t.Fatalf("%s, %v", out, err)
	}
	if c := record.Calls[0]; c.Status != "ok" || !strings.HasPrefix(c.Content, "42 [") || !strings.HasSuffix(c.Content, "] in") || strings.Contains(c.Content, "'home'") {
		t.Errorf("the program says %q", c.Content)
	}

	cmd := temper()
	keys, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said lockedBuffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write := func(text, want string) {
		t.Helper()
		if _, err := io.WriteString(keys, text); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); !strings.Contains(said.String(), want); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no %q in %q", want, said.String())
			}
		}
	}
	write("slow?\n", "....")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	write("", "[cut]")
	write("and \\\nnow?\n", `done \x1b[2J`)
	write("/reset\n", "[the talk begins anew]")
	_ = keys.Close()
	if err := cmd.Wait(); err != nil || strings.Contains(said.String(), "\x1b") {
		t.Errorf("%v after %q", err, said.String())
	}
}

// TestChatThatIsEnded in the middle of an answer leaves nothing behind.
func TestChatThatIsEnded(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "temper"), "chat", "--url", scriptedModel(t))
	tmp := t.TempDir()
	cmd.Env = append(testbin.Environment(), "TMPDIR="+tmp)
	keys, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = keys.Close() }()
	var said lockedBuffer
	cmd.Stdout = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(keys, "slow?\n"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !strings.Contains(said.String(), "..") && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("it ended as if nothing had happened: %q", said.String())
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("files %v are left (%v)", left, err)
	}
}

// checkChat talks with a policy of the run.
func checkChat(t *testing.T, p *place) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "temper"), "chat", "--home", p.home, "--model", "whole", "--policy-version", "2",
		"--temperature", "0", "--max-tokens", "30", "--prompt", "k123?", "--json")
	cmd.Env = testbin.Environment()
	out, err := cmd.Output()
	var record struct {
		Model string
		Turns int
		Usage struct {
			Completion int `json:"completion_tokens"`
		}
	}
	if json.Unmarshal(out, &record) != nil || record.Model != "whole" || record.Turns < 1 || record.Usage.Completion < 1 {
		t.Errorf("chat says %s (%v)", out, err)
	}
}
