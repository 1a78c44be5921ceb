//go:build integration

package rollout_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/rl"
	"temper/internal/tool"
)

var update = flag.Bool("update", false, "write the dialogues of the example anew")

const example = "../../configs/own"

// numExample is the number of dialogues of the example.
const numExample = 400

var keyInCode = regexp.MustCompile(`k\d+`)

// exampleDialogue is a dialogue of the chase teacher in the words of the example's tool.
// Its results are those of answer.
func exampleDialogue(t *testing.T, i int, answer func(chat.Call, string) string) chat.Dialogue {
	t.Helper()
	d, err := env.Chase{}.Dialogue(4, i, 1)
	if err != nil {
		t.Fatal(err)
	}
	for at, m := range d.Messages {
		if len(m.ToolCalls) == 0 {
			continue
		}
		code := m.ToolCalls[0].Function.Arguments
		key := keyInCode.FindString(code)
		arguments := fmt.Sprintf(`{"key": %q}`, key)
		broken := strings.Contains(d.Messages[at+1].Content, " at line ")
		if broken && at%2 == 1 {
			arguments = fmt.Sprintf(`{"k": %q}`, key)
		} else if broken {
			arguments = fmt.Sprintf(`{"key": %s}`, key[1:])
		}
		m.ToolCalls = []chat.ToolCall{{Type: "function", Function: chat.Function{Name: "lookup", Arguments: arguments}}}
		if broken { // a call that does not fit its schema is text
			m.Content, m.ToolCalls = lookupCall(arguments), nil
		}
		entry := d.Messages[at+1].Content
		d.Messages[at] = m
		d.Messages[at+1].Content = answer(chat.Call{Name: "lookup", Arguments: arguments}, fmt.Sprintf("db = {%q: %q}", key, entry))
	}
	return d
}

func lookupCall(arguments string) string {
	return chat.TokenToolCall + "\n" + `{"name": "lookup", "arguments": ` + arguments + "}\n" + chat.TokenToolCallEnd
}

func exampleFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(example, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func exampleTools(t *testing.T) tool.File {
	t.Helper()
	f, problems := tool.NewFile("book.py", exampleFile(t, "book.py"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return f
}

// TestExampleSpeaksAsTheSandbox: the dialogues of the example are those of the teacher,
// with the results that its tool gives in the real sandbox.
func TestExampleSpeaksAsTheSandbox(t *testing.T) {
	file := exampleTools(t)
	set := tool.NewSet(tool.Config{Executor: realSandbox(t), Files: []tool.File{file}})
	format, err := chat.NewPlain(chat.Config{Functions: file.Functions})
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	answer := func(c chat.Call, fixture string) string {
		parsed := format.ParseTurn(append(format.Tokenizer().EncodeSpecial(lookupCall(c.Arguments)), format.Stop()[0])).Calls[0]
		if parsed.Malformed != "" {
			return parsed.Malformed
		}
		calls++
		got, err := set["lookup"].Call(t.Context(), tool.Call{ID: fmt.Sprint(calls), Problem: &rl.Problem{Fixture: fixture}, Said: parsed})
		if err != nil {
			t.Fatal(err)
		}
		return got.Outcome.Text(0)
	}
	var made bytes.Buffer
	enc := json.NewEncoder(&made)
	enc.SetEscapeHTML(false)
	for i := range numExample {
		if err := enc.Encode(exampleDialogue(t, i, answer)); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		if err := os.WriteFile(filepath.Join(example, "dialogues.jsonl"), made.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(made.Bytes(), exampleFile(t, "dialogues.jsonl")) {
		t.Errorf("%s/dialogues.jsonl is not what teacher and sandbox say: run this test with -update", example)
	}
}
