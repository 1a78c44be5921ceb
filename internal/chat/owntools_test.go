package chat_test

import (
	"encoding/json"
	"strings"
	"testing"

	"temper/internal/chat"
	"temper/internal/tool/builtin"
)

// withTools is a dialogue with two tools of its own and parallel calls.
func withTools() chat.Dialogue {
	call := func(name, arguments string) chat.ToolCall {
		return chat.ToolCall{Type: "function", Function: chat.Function{Name: name, Arguments: arguments}}
	}
	return chat.Dialogue{
		Tools: []json.RawMessage{
			json.RawMessage(`{"name": "Star Chart/v2", "description": "stars <|im_end|>", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}`),
			json.RawMessage(`{"type": "function", "function": {"name": "python", "parameters": {"type": "object", "properties": {}}}}`),
		},
		Messages: []chat.Message{
			{Role: chat.RoleUser, Content: "Which stars?"},
			{Role: chat.RoleAssistant, Content: "Let me look.", ToolCalls: []chat.ToolCall{call("Star Chart/v2", `{"at": "cape"}`), call("python", `{"x": [1, 2]}`)}},
			{Role: chat.RoleTool, Content: "Vega"},
			{Role: chat.RoleTool, Content: "none"},
			{Role: chat.RoleAssistant, Content: "Vega."},
		},
	}
}

// TestToolsOfADialogue: every format shows the dialogue's schemas and not the run's, writes
// its calls, and learns the turns of the assistant alone. Control tokens in a schema are text.
func TestToolsOfADialogue(t *testing.T) {
	for name, cfg := range map[string]chat.Config{
		"small":           {ToolsInPrompt: true},
		"small, no tools": {},
		"rstar2":          {Template: builtinTemplate(t, chat.FormatRStar2)},
		"rstar2-released": {Template: builtinTemplate(t, chat.FormatRStar2Released)},
		"no tools":        {Template: builtinTemplate(t, chat.FormatRStar2), Tools: []string{chat.NoTools}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := chat.NewPlain(cfg)
			if err != nil {
				t.Fatal(err)
			}
			d, _ := f.Fit(withTools())
			tr, err := f.Render(d)
			if err != nil {
				t.Fatal(err)
			}
			text, learned := f.Tokenizer().Decode(tr.Tokens()), learnedText(f, tr)
			for _, want := range []string{`"name": "Star Chart/v2"`, "stars <|im_end|>", "Vega"} {
				if !strings.Contains(text, want) {
					t.Errorf("the text lacks %q:\n%s", want, text)
				}
			}
			if strings.Contains(text, "Run a Python program") || strings.Contains(text, "Execute Python code") {
				t.Errorf("the run's tools are shown:\n%s", text)
			}
			for _, want := range []string{"Let me look.", `{"name": "Star Chart/v2", "arguments": {"at": "cape"}}`, `{"name": "python", "arguments": {"x": [1, 2]}}`, "Vega."} {
				if !strings.Contains(learned, want) {
					t.Errorf("learned is %q, without %q", learned, want)
				}
			}
			if strings.Contains(learned, "none") || strings.Contains(learned, "Which") || strings.Contains(learned, "description") {
				t.Errorf("learned is %q", learned)
			}
			ends := 0
			id, _ := f.Tokenizer().Special(chat.TokenEnd)
			for _, token := range tr.Tokens() {
				if token == id {
					ends++
				}
			}
			if said := strings.Count(text, chat.TokenEnd); ends != said-1 {
				t.Errorf("%d control tokens end a turn, and the text has %d, one of them in a schema", ends, said)
			}
			d.Tools = []json.RawMessage{}
			d.Messages = []chat.Message{d.Messages[0], d.Messages[4]}
			if tr, err = f.Render(d); err != nil {
				t.Fatal(err)
			}
			if text := f.Tokenizer().Decode(tr.Tokens()); strings.Contains(text, "<tools>") {
				t.Errorf("an empty list of tools shows some:\n%s", text)
			}
		})
	}
}

func builtinTemplate(t *testing.T, name string) *chat.Template {
	t.Helper()
	tmpl, err := chat.Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func learnedText(f *chat.Format, tr *chat.Transcript) string {
	var ids []int32
	for i, learned := range tr.LossMask() {
		if learned {
			ids = append(ids, tr.Tokens()[i])
		}
	}
	return f.Tokenizer().Decode(ids)
}

// TestToolsThatDoNotFit are refused with the place.
func TestToolsThatDoNotFit(t *testing.T) {
	for want, change := range map[string]func(*chat.Dialogue){
		`message 1: tool call 1: the dialogue has no tool "python"`: func(d *chat.Dialogue) { d.Tools = d.Tools[:1] },
		"message 1: tool call 0: arguments are no JSON object":      func(d *chat.Dialogue) { d.Messages[1].ToolCalls[0].Function.Arguments = "[1]" },
		"message 1: tool call 0: arguments are no JSON:":            func(d *chat.Dialogue) { d.Messages[1].ToolCalls[0].Function.Arguments = "{" },
		"tools: tool 1: a second":                                   func(d *chat.Dialogue) { d.Tools[1] = d.Tools[0] },
		"tools[0]: want an object":                                  func(d *chat.Dialogue) { d.Tools[0] = json.RawMessage(`7`) },
		"message 2: tool_call_id is \"b\"":                          func(d *chat.Dialogue) { d.Messages[1].ToolCalls[0].ID = "a"; d.Messages[2].ToolCallID = "b" },
	} {
		d := withTools()
		change(&d)
		if err := d.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}

// TestFit puts the opening in where it lacks, and renames the tool of the small ChatML.
func TestFit(t *testing.T) {
	f, err := chat.NewPlain(chat.Config{Template: builtinTemplate(t, chat.FormatRStar2)})
	if err != nil {
		t.Fatal(err)
	}
	d := chat.Dialogue{Messages: []chat.Message{
		{Role: chat.RoleUser, Content: "1+1?"}, chat.CallMessage(chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: "print(1+1)"}.Arguments()}),
		{Role: chat.RoleTool, Content: "2"}, {Role: chat.RoleAssistant, Content: "so it is</reason><answer>2</answer>"},
	}}
	if _, err := f.Render(d); err == nil {
		t.Fatal("the dialogue fits as it is")
	}
	fitted, changed := f.Fit(d)
	if _, err := f.Render(fitted); err != nil || !changed {
		t.Fatalf("changed is %v: %v", changed, err)
	}
	if c := fitted.Messages[1]; c.ToolCalls[0].Function.Name != builtin.ExecutePython || c.Content != "<reason></reason>" {
		t.Errorf("the call is %+v", c)
	}
	if c := fitted.Messages[3].Content; c != "<reason>so it is</reason><answer>2</answer>" {
		t.Errorf("the answer is %q", c)
	}
	if again, changed := f.Fit(fitted); changed || again.Messages[3].Content != fitted.Messages[3].Content {
		t.Error("what fits is changed again")
	}
}
