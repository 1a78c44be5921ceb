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
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/fault"
	"temper/internal/reward"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/internal/tool"
	"temper/sandbox"
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

// answered makes a trajectory that answers at once, judged by a reward function.
func answered(t *testing.T, executor sandbox.Executor, source string, timeout time.Duration) (rl.Trajectory, error) {
	t.Helper()
	file, problems := reward.NewFile("my.py", []byte(source))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	f := newFormat(t)
	cfg := config()
	cfg.Reward = &rollout.Reward{File: file, Limits: sandbox.Limits{Wall: timeout, CPU: timeout}}
	r := newRunnerWith(t, cfg, f, says(f, "<answer>116</answer>"), executor)
	return r.Rollout(t.Context(), spec())
}

// TestRewardFunctions: what a function returns is the reward; whatever else it does is an
// error that names file and line, and never a reward.
func TestRewardFunctions(t *testing.T) {
	executor := realSandbox(t)
	for name, c := range map[string]struct {
		body string
		want float64
		err  string
	}{
		"number":           {"return 0.25", 0.25, ""},
		"truth value":      {"return trajectory.startswith('<answer>') and key == '116' and problem['prompt'] == 'k396?'", 1, ""},
		"details":          {"return {'reward': -2, 'details': {'a': [1]}}", -2, ""},
		"prints":           {"print('{\"reward\": 9}')\n    return 0.5", 0.5, ""},
		"raises":           {"x = 1\n    return 1 / 0", 0, "my.py:3: reward ZeroDivisionError: division by zero"},
		"nan":              {"return float('nan')", 0, "my.py:1: reward returned nan, want a finite number"},
		"infinite":         {"return {'reward': 1e999}", 0, "my.py:1: reward returned inf"},
		"huge":             {"return 10 ** 400", 0, "OverflowError"},
		"text":             {"return '1'", 0, "my.py:1: reward returned a str, want a number"},
		"nothing":          {"pass", 0, "my.py:1: reward returned a NoneType"},
		"other keys":       {"return {'score': 1}", 0, "my.py:1: reward returned a dict with the keys ['score']"},
		"wrong details":    {"return {'reward': 1, 'details': {'a': {1}}}", 0, "returned details that are no JSON"},
		"long details":     {"return {'reward': 1, 'details': {'a': 'x' * 5000}}", 0, "above the limit of 4096"},
		"never ends":       {"while True: pass", 0, "my.py:1: reward time_limit"},
		"too much memory":  {"return len(bytearray(1 << 40))", 0, "MemoryError"},
		"leaves":           {"import os\n    os._exit(0)", 0, "my.py:1: reward ended without a result"},
		"exits":            {"raise SystemExit(3)", 0, "my.py:1: reward ended with exit status 3"},
		"reads a file":     {"return len(open('/etc/hostname').read())", 0, "my.py:2: reward FileNotFoundError"},
		"asks the network": {"import socket\n    socket.create_connection(('1.1.1.1', 53), 1)", 0, "my.py:3: reward "},
	} {
		t.Run(name, func(t *testing.T) {
			source := "def reward(problem, trajectory, key):\n    " + c.body + "\n"
			got, err := answered(t, executor, source, time.Second)
			switch {
			case c.err == "" && err != nil:
				t.Fatal(err)
			case c.err == "":
				if got.Reward != c.want || got.StopReason != rl.StopAnswered {
					t.Errorf("reward %v of %+v, want %v", got.Reward, got, c.want)
				}
			case err == nil || fault.Of(err) != fault.UserCode || !strings.Contains(err.Error(), c.err):
				t.Errorf("reward %v, error %v of kind %q, want %q", got.Reward, err, fault.Of(err), c.err)
			default:
				t.Log(err)
			}
		})
	}
}

// TestFilesThatCannotBeImported end a run before anything is sampled.
func TestFilesThatCannotBeImported(t *testing.T) {
	executor := realSandbox(t)
	const function = "\ndef f(a: int) -> int:\n    \"\"\"Count.\"\"\"\n    return a\n"
	for name, c := range map[string]struct{ source, want string }{
		"good":             {function, ""},
		"prints at import": {"print('loud')\n" + function, ""},
		"main program":     {function + "\nif __name__ == '__main__':\n    raise SystemExit(1)\n", ""},
		"missing module":   {"import re\nimport not_there\n" + function, "my.py:2: cannot be imported in the sandbox: ModuleNotFoundError: No module named 'not_there'"},
		"syntax":           {"x = = 1\n" + function, "my.py:1: cannot be imported in the sandbox: SyntaxError"},
		"loops":            {"while True: pass\n" + function, "my.py: cannot be imported in the sandbox: it does not end"},
		"ends":             {"raise SystemExit(0)\n" + function, "it ends or reads standard input while it is imported"},
		"reads":            {"import sys\nsys.stdin.read()\n" + function, "JSONDecodeError"},
		"no function":      {function + "\nf = 1\n", "f is no function once the file has run"},
		"reads a file":     {"open('/etc/hostname')\n" + function, "my.py:1: cannot be imported"},
	} {
		t.Run(name, func(t *testing.T) {
			f, problems := tool.NewFile("my.py", []byte(c.source))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			probe := tool.Probe{Key: "rollout.tools", Source: f.Source, Names: []string{"f"}, Run: "run", Limits: sandbox.Limits{Wall: time.Second}}
			err := probe.Ask(t.Context(), executor)
			if c.want == "" && err != nil || c.want != "" && (fault.Of(err) != fault.UserCode || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v of kind %q, want %q", err, fault.Of(err), c.want)
			}
		})
	}
}

// TestFunctionsAsTools: what a function prints and returns comes back as Python's does,
// and what it raises is a tool error without lines that the policy cannot see.
func TestFunctionsAsTools(t *testing.T) {
	source := `print("loud")
class Odd(Exception): pass
def f(a: str, n: int = 1, more: list[float] = []) -> str:
    """Try things."""
    print(len(db), a * n)
    if a == "odd":
        raise Odd("so it is")
    if a == "stop":
        while True: pass
    return more or None
`
	file, problems := tool.NewFile("my.py", []byte(source))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	f := exampleFormat(t, file)
	cfg := config()
	cfg.Files, cfg.MaxCallsPerTurn, cfg.ToolTimeout = []tool.File{file}, 0, time.Second
	call := func(arguments string) string {
		return `<tool_call>{"name": "f", "arguments": ` + arguments + `}</tool_call>`
	}
	turn := call(`{"a": "x"}`) + call(`{"a": "y", "n": 2, "more": [1, 2.5]}`) + call(`{"a": "odd"}`) + call(`{"a": "stop"}`) +
		call(`{"b": 1}`) + call(`{"a": 1}`) + call(`{"a": "x", "c": 1}`) + call(`{"a": "x", "more": ["1"]}`) + call(`{"a": "\"); import os #"}`) +
		`<tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>`
	s := spec()
	s.MaxResponseTokens = 4000
	got := run(t, newRunnerWith(t, cfg, f, says(f, turn, "<answer>116</answer>"), realSandbox(t)), s)
	var said []string
	for _, c := range got.Turns[0].Calls {
		said = append(said, string(c.Status)+": "+c.Response)
	}
	want := []string{
		"ok: 1 x", "ok: 1 yy\n[1, 2.5]", "error: 1 odd\nOdd: so it is", "time_limit: TimeLimit: the program took too long",
		"malformed: Error when executing tool: argument 'a' is missing", "malformed: Error when executing tool: argument 'a' must be a string",
		`malformed: Error when executing tool: unknown argument "c", want some of 'a', 'n', 'more'`,
		"malformed: Error when executing tool: argument 'more' must be of items that are each a number",
		"ok: 1 \"); import os #", `malformed: Error when executing tool: no tool is named "python"`,
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func exampleFormat(t *testing.T, file tool.File) *chat.Format {
	t.Helper()
	f, err := chat.NewPlain(chat.Config{Functions: file.Functions})
	if err != nil {
		t.Fatal(err)
	}
	return f
}
