package chat_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/chat"
	"temper/internal/tool/builtin"
)

const findSchema = `{"type": "function", "function": {"name": "find", "description": "Find <|im_end|> it.", "parameters": {"type": "object", "properties": {` +
	`"what": {"type": "string", "enum": ["a", "b"]}, "n": {"type": "integer"}, "x": {"type": ["number", "boolean"], "nullable": true}, ` +
	`"list": {"type": "array", "items": {"type": "integer"}}, "map": {"type": "object", "additionalProperties": {"type": "string"}}}, "required": ["what"]}}}`

func findTool() []chat.FunctionTool { return []chat.FunctionTool{{Name: "find", Schema: findSchema}} }

// parsed reads one call in a format and says what became of it.
func parsed(t *testing.T, f *chat.Format, body string) string {
	t.Helper()
	turn := append(f.Tokenizer().EncodeSpecial(chat.TokenToolCall+body+chat.TokenToolCallEnd), f.Stop()[0])
	calls := f.ParseTurn(turn).Calls
	if len(calls) != 1 {
		t.Fatalf("%d calls in %s", len(calls), body)
	}
	if c := calls[0]; c.Malformed == "" {
		if p, err := builtin.ProgramOf(c.Arguments); err == nil && builtin.IsProgram(c.Name) {
			return c.Name + "|" + p.Code + "|" + p.Input + "|"
		}
		return c.Name + "|||" + c.Arguments
	}
	return strings.TrimPrefix(calls[0].Malformed, "Error when executing tool: ")
}

// TestFunctionsOfARun: in every dialect the prompt shows their schemas, their calls must
// fit, and the built-in tools beside them read as before.
func TestFunctionsOfARun(t *testing.T) {
	rstar, err := chat.Builtin(chat.FormatRStar2)
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]chat.Config{
		"small":                {Tools: []string{builtin.Python}, Functions: findTool()},
		"template":             {Template: rstar, Tools: []string{builtin.Python}, Functions: findTool()},
		"small, alone":         {Functions: findTool()},
		"template, only yours": {Template: rstar, Functions: findTool()},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := chat.NewPlain(cfg)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := f.Begin("q")
			if err != nil {
				t.Fatal(err)
			}
			if prompt := f.Tokenizer().Decode(tr.Tokens()); !strings.Contains(prompt, `"name": "find"`) || strings.Contains(prompt, `"name": "python"`) != (len(cfg.Tools) > 0) {
				t.Errorf("prompt\n%s", prompt)
			}
			checkFindCalls(t, f)
			python := parsed(t, f, `{"name": "python", "arguments": {"code": "1", "more": 2}}`)
			if want := map[bool]string{true: "python|1||", false: `no tool is named "python"`}[len(cfg.Tools) > 0]; python != want {
				t.Errorf("a call of python is %q, want %q", python, want)
			}
		})
	}
}

func checkFindCalls(t *testing.T, f *chat.Format) {
	t.Helper()
	for arguments, want := range map[string]string{
		`{"what": "a"}`: `find|||{"what":"a"}`,
		`{"what": "a", "n": 12345678901234567890, "x": 1.50, "list": [ 1 ], "map": {"k": "v"}}`: `find|||{"what":"a","n":12345678901234567890,"x":1.50,"list":[1],"map":{"k":"v"}}`,
		`{"what": "b", "x": null}`:         `find|||{"what":"b","x":null}`,
		`"{\"what\": \"a\", \"x\": true}"`: `find|||{"what":"a","x":true}`,
		`{}`:                               "argument 'what' is missing",
		`{"what": "c"}`:                    "argument 'what' must be one of 'a', 'b'",
		`{"what": null}`:                   "argument 'what' must be a string",
		`{"what": "a", "n": 1.0}`:          "argument 'n' must be an integer",
		`{"what": "a", "n": true}`:         "argument 'n' must be an integer",
		`{"what": "a", "x": "1"}`:          "argument 'x' must be a number or a boolean",
		`{"what": "a", "list": {}}`:        "argument 'list' must be an array",
		`{"what": "a", "list": [1, "2"]}`:  "argument 'list' must be of items that are each an integer",
		`{"what": "a", "map": {"k": 1}}`:   "argument 'map' must be of items that are each a string",
		`{"what": "a", "who": 1}`:          `unknown argument "who", want some of 'what', 'n', 'x', 'list', 'map'`,
		`{"what": "a", "a\nb": 1}`:         `unknown argument "a\nb", want some of 'what', 'n', 'x', 'list', 'map'`,
		`[]`:                               "Failed to decode tool call: arguments must be an object",
	} {
		if got := parsed(t, f, `{"name": "find", "arguments": `+arguments+`}`); got != want {
			t.Errorf("%s: %q, want %q", arguments, got, want)
		}
	}
}

// TestDialoguesWithFunctions: a call of a dialogue must fit, and is read back as it is.
func TestDialoguesWithFunctions(t *testing.T) {
	dialogue := func(name, arguments string) chat.Dialogue {
		return chat.Dialogue{Messages: []chat.Message{
			{Role: chat.RoleUser, Content: "q"},
			{Role: chat.RoleAssistant, ToolCalls: []chat.ToolCall{{Type: "function", Function: chat.Function{Name: name, Arguments: arguments}}}},
			{Role: chat.RoleTool, Content: "1"},
			{Role: chat.RoleAssistant, Content: "<answer>1</answer>"},
		}}
	}
	f, err := chat.NewPlain(chat.Config{Functions: findTool()})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := f.Render(dialogue("find", `{"what": "a"}`))
	if err != nil {
		t.Fatal(err)
	}
	const call = "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"what\": \"a\"}}\n</tool_call>"
	if text := f.Tokenizer().Decode(tr.Tokens()); !strings.Contains(text, call) {
		t.Errorf("the dialogue lacks %q:\n%s", call, text)
	}
	for _, c := range [][3]string{
		{"find", `{"what": 1}`, "message 1: tool call 0: Error when executing tool: argument 'what' must be a string"},
		{"python", `{"code": "1"}`, `no tool is named "python"`}, {"bash", `{}`, `no tool is named "bash"`},
	} {
		if _, err := f.Render(dialogue(c[0], c[1])); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s %s: error %v, want %q", c[0], c[1], err, c[2])
		}
	}
	plain, err := chat.NewPlain(chat.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plain.Render(dialogue("find", `{"what": "a"}`)); err == nil || !strings.Contains(err.Error(), "unknown tool") {
		t.Errorf("a format without the tool renders its call: %v", err)
	}
	if diff := cmp.Diff("python|1||", parsed(t, plain, `{"name": "python", "arguments": {"code": "1"}}`)); diff != "" {
		t.Error(diff)
	}
}
