package chat_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"temper/internal/chat"
	"temper/internal/chat/jinja"
	"temper/internal/tool/builtin"
)

func toolset(t testing.TB) *chat.Toolset {
	t.Helper()
	standardIO, _ := builtin.ByName(builtin.PythonStandardIO)
	schemas, err := jinja.Decode([]byte("[" + standardIO.Schema + `, {"type": "function", "function": {"name": "jupyter_code",
"parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	ts, err := chat.NewToolset(schemas.(*jinja.List))
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func TestToolsetParse(t *testing.T) {
	const undecodableCall, failed = "Failed to decode tool call: ", "Error when executing tool: "
	tests := map[string]struct {
		text    string
		calls   []string // "name arguments" or the refusal
		content string
	}{
		"no call":                {"<answer>1</answer>", nil, "<answer>1</answer>"},
		"one call":               {`a<tool_call>{"name": "jupyter_code", "arguments": {"code": "1"}}</tool_call>b`, []string{`jupyter_code {"code": "1"}`}, "ab"},
		"several, one bad":       {`<tool_call>{"name": "jupyter_code", "arguments": {"code": "1"}}</tool_call><tool_call>[</tool_call><tool_call>{"name": "python_code_with_standard_io", "arguments": {"code": "c", "input": ""}}</tool_call>`, []string{`jupyter_code {"code": "1"}`, undecodableCall + "invalid JSON: unexpected end of JSON input", `python_code_with_standard_io {"code": "c", "input": ""}`}, ""},
		"not closed":             {`x<tool_call>{"name": "jupyter_code"`, []string{undecodableCall + "the call is not closed by </tool_call>"}, "x"},
		"closing tag in code":    {`<tool_call>{"name": "jupyter_code", "arguments": {"code": "print('</tool_call>')"}}</tool_call>`, []string{`jupyter_code {"code": "print('</tool_call>')"}`}, ""},
		"opening tag in code":    {`<tool_call>{"name": "jupyter_code", "arguments": {"code": "'<tool_call>'"}}</tool_call>`, []string{`jupyter_code {"code": "'<tool_call>'"}`}, ""},
		"nested":                 {`<tool_call><tool_call>{}</tool_call></tool_call>`, []string{undecodableCall + "invalid JSON: invalid character '<' looking for beginning of value"}, "</tool_call>"},
		"closed without opening": {"a</tool_call>b", nil, "a</tool_call>b"},
		"arguments in a string":  {`<tool_call>{"name": "jupyter_code", "arguments": "{\"code\": \"1\"}"}</tool_call>`, []string{`jupyter_code {"code": "1"}`}, ""},
		"string is no JSON":      {`<tool_call>{"name": "jupyter_code", "arguments": "1 +"}</tool_call>`, []string{undecodableCall + "arguments are a string that is no JSON: text after the JSON value"}, ""},
		"arguments are a list":   {`<tool_call>{"name": "jupyter_code", "arguments": []}</tool_call>`, []string{undecodableCall + "arguments must be an object"}, ""},
		"no object":              {`<tool_call>"x"</tool_call>`, []string{undecodableCall + "not a JSON object"}, ""},
		"no name":                {`<tool_call>{"arguments": {}}</tool_call>`, []string{undecodableCall + "'name' is missing"}, ""},
		"no arguments":           {`<tool_call>{"name": "jupyter_code"}</tool_call>`, []string{undecodableCall + "'arguments' is missing"}, ""},
		"name is a number":       {`<tool_call>{"name": 1, "arguments": {}}</tool_call>`, []string{undecodableCall + "name must be a string"}, ""},
		"unknown tool":           {`<tool_call>{"name": "bash", "arguments": {}}</tool_call>`, []string{failed + `no tool is named "bash"`}, ""},
		"missing argument":       {`<tool_call>{"name": "python_code_with_standard_io", "arguments": {"code": "1"}}</tool_call>`, []string{failed + "argument 'input' is missing"}, ""},
		"further argument":       {`<tool_call>{"name": "jupyter_code", "arguments": {"code": "1", "x": 2}}</tool_call>`, []string{`jupyter_code {"code": "1", "x": 2}`}, ""},
		"wrong type":             {`<tool_call>{"name": "jupyter_code", "arguments": {"code": 1}}</tool_call>`, []string{failed + "argument 'code' must be a string"}, ""},
	}
	ts := toolset(t)
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			said := ts.Parse(c.text)
			var calls []string
			for _, call := range said.Calls {
				calls = append(calls, describe(t, call))
			}
			if diff := cmp.Diff(calls, c.calls); diff != "" || said.Content != c.content {
				t.Errorf("content %q, want %q; got -, want +\n%s", said.Content, c.content, diff)
			}
		})
	}
}

func toJSON(v jinja.Value) (string, error) {
	tmpl, err := jinja.Parse("{{ v|tojson }}")
	if err != nil {
		return "", err
	}
	vars := jinja.NewDict()
	vars.Set("v", v)
	out, err := tmpl.Render(vars, jinja.Options{})
	return out.Text, err
}

func describe(t testing.TB, call chat.Invocation) string {
	t.Helper()
	if call.Refused != "" {
		return call.Refused
	}
	args, err := toJSON(call.Arguments)
	if err != nil {
		t.Fatal(err)
	}
	return call.Name + " " + args
}

// TestToolsetReadsAnyCode: whatever text a policy puts into its code, tags too,
// comes back as it was.
func TestToolsetReadsAnyCode(t *testing.T) {
	ts := toolset(t)
	rapid.Check(t, func(t *rapid.T) {
		code := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"<tool_call>", "</tool_call>", "\"", "\\", "\n", "é", "{", "}", "x"})).Draw(t, "code"), "")
		if strings.Count(code, "</tool_call>") >= 60 {
			t.Skip("more closing tags than are tried")
		}
		args := jinja.NewDict()
		args.Set("code", code)
		text, err := toJSON(args)
		if err != nil {
			t.Fatal(err)
		}
		call := "<tool_call>\n{\"name\": \"jupyter_code\", \"arguments\": " + text + "}\n</tool_call>"
		said := ts.Parse("a" + call + "b" + call)
		if len(said.Calls) != 2 || said.Content != "ab" {
			t.Fatalf("%d calls and content %q in %s", len(said.Calls), said.Content, call)
		}
		for _, c := range said.Calls {
			if got, _ := c.Arguments.Get("code"); got != code || c.Refused != "" {
				t.Fatalf("code %q became %q (%s)", code, got, c.Refused)
			}
		}
	})
}

func FuzzToolsetParse(f *testing.F) {
	ts := toolset(f)
	f.Add(`<tool_call>{"name": "jupyter_code", "arguments": "{\"code\": \"</tool_call>\"}"}</tool_call>`)
	f.Add("<tool_call><tool_call></tool_call>")
	f.Fuzz(func(t *testing.T, text string) {
		said := ts.Parse(text)
		if strings.Contains(text, chat.TokenToolCall) != (len(said.Calls) > 0) {
			t.Fatalf("%d calls in %q", len(said.Calls), text)
		}
		for _, c := range said.Calls {
			if c.Refused == "" && (c.Name != builtin.PythonStandardIO && c.Name != "jupyter_code" || c.Arguments == nil) {
				t.Fatalf("call %+v of %q is neither good nor refused", c, text)
			}
			if strings.Contains(c.Refused, "\n") {
				t.Fatalf("refusal %q has several lines", c.Refused)
			}
		}
	})
}
