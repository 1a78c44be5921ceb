package chat_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"temper/internal/chat"
	"temper/internal/tool/builtin"
)

func TestParseTurn(t *testing.T) {
	f := format(t, chat.Config{})
	good := chat.RenderCall(chat.Call{Name: "python", Arguments: builtin.Program{Code: "print(1)"}.Arguments()})
	bad := func(why string) []chat.Call {
		return []chat.Call{{Malformed: "Failed to decode tool call: " + why}}
	}
	tests := map[string]struct {
		text    string
		calls   []chat.Call
		content string
	}{
		"no call":             {"<answer>1</answer><|im_end|>", nil, "<answer>1</answer>"},
		"one call":            {"a" + good + "b<|im_end|>", []chat.Call{{Name: "python", Arguments: `{"code":"print(1)"}`}}, "ab"},
		"input":               {`<tool_call>{"name":"python","arguments":{"code":"c","input":"i"}}</tool_call>`, []chat.Call{{Name: "python", Arguments: `{"code":"c","input":"i"}`}}, ""},
		"two, second bad":     {good + "<tool_call>x</tool_call>", append([]chat.Call{{Name: "python", Arguments: `{"code":"print(1)"}`}}, bad("invalid JSON object")...), ""},
		"not closed":          {"x<tool_call>\n{", bad("not closed"), "x"},
		"empty":               {"<tool_call></tool_call>", bad("invalid JSON object"), ""},
		"array":               {"<tool_call>[1]</tool_call>", bad("invalid JSON object"), ""},
		"null":                {"<tool_call>null</tool_call>", bad("invalid JSON object"), ""},
		"invalid UTF-8":       {"<tool_call>{\"name\":\"\xff\"}</tool_call>", bad("invalid JSON object"), ""},
		"no name":             {`<tool_call>{"arguments":{"code":"c"}}</tool_call>`, bad("name must be a string"), ""},
		"other case":          {`<tool_call>{"Name":"python","arguments":{"code":"c"}}</tool_call>`, bad("name must be a string"), ""},
		"unknown tool":        {`<tool_call>{"name":"bash","arguments":{"code":"c"}}</tool_call>`, bad("unknown tool, use python"), ""},
		"no arguments":        {`<tool_call>{"name":"python"}</tool_call>`, bad("arguments must be an object"), ""},
		"string arguments":    {`<tool_call>{"name":"python","arguments":"c"}</tool_call>`, bad("arguments must be an object"), ""},
		"no code":             {`<tool_call>{"name":"python","arguments":{}}</tool_call>`, bad("code must be a string"), ""},
		"code is a number":    {`<tool_call>{"name":"python","arguments":{"code":1}}</tool_call>`, bad("code must be a string"), ""},
		"code is null":        {`<tool_call>{"name":"python","arguments":{"code":null}}</tool_call>`, bad("code must be a string"), ""},
		"input is a list":     {`<tool_call>{"name":"python","arguments":{"code":"c","input":[]}}</tool_call>`, bad("input must be a string"), ""},
		"opened twice":        {"<tool_call>" + good, bad("invalid JSON object"), ""},
		"closed without open": {"a</tool_call>b", nil, "a</tool_call>b"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			got := f.ParseTurn(f.Tokenizer().EncodeSpecial(c.text))
			if diff := cmp.Diff(got, chat.ParsedTurn{Content: c.content, Calls: c.calls}); diff != "" {
				t.Errorf("got -, want +\n%s", diff)
			}
		})
	}
}

// TestParseReadsWhatRenderWrites, also for code that holds the tags as text.
func TestParseReadsWhatRenderWrites(t *testing.T) {
	f := format(t, chat.Config{})
	rapid.Check(t, func(t *rapid.T) {
		program := builtin.Program{Code: rapid.String().Draw(t, "code"), Input: rapid.String().Draw(t, "input")}
		call := chat.Call{Name: builtin.Python, Arguments: program.Arguments()}
		text, err := chat.AssistantText(chat.CallMessage(call, call))
		if err != nil {
			t.Fatal(err)
		}
		got := f.ParseTurn(f.Tokenizer().EncodeSpecial(text))
		if len(got.Calls) != 2 || got.Content != "\n" {
			t.Fatalf("parsed %+v", got)
		}
		for _, c := range got.Calls {
			if read, err := builtin.ProgramOf(c.Arguments); err != nil || read != program || c.Name != builtin.Python || c.Malformed != "" {
				t.Fatalf("%+v is read as %+v (%v)", program, c, err)
			}
		}
	})
}

func TestTagInsideCodeIsText(t *testing.T) {
	f := format(t, chat.Config{})
	tok := f.Tokenizer()
	open, _ := tok.Special(chat.TokenToolCall)
	end, _ := tok.Special(chat.TokenToolCallEnd)
	body := `{"name": "python", "arguments": {"code": "print('</tool_call>')"}}`
	tokens := append(append([]int32{open}, tok.Encode(body)...), end)
	got := f.ParseTurn(tokens)
	if len(got.Calls) != 1 || got.Calls[0].Arguments != `{"code":"print('</tool_call>')"}` {
		t.Errorf("parsed %+v", got)
	}
}

func FuzzParseTurn(f *testing.F) {
	fm := format(f, chat.Config{})
	f.Add("<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}\n</tool_call><|im_end|>")
	f.Add("<tool_call><tool_call></tool_call></answer>")
	f.Fuzz(func(t *testing.T, text string) {
		got := fm.ParseTurn(fm.Tokenizer().EncodeSpecial(text))
		if want := countCalls(text); len(got.Calls) != want {
			t.Fatalf("%d calls in %q, want %d", len(got.Calls), text, want)
		}
		for _, c := range got.Calls {
			if (c.Malformed == "") != (c.Name == builtin.Python) || strings.Contains(c.Malformed, "\n") {
				t.Fatalf("call %+v of %q is neither good nor malformed", c, text)
			}
		}
	})
}

// countCalls counts opened calls the simple way.
func countCalls(text string) int {
	n := 0
	for {
		_, rest, found := strings.Cut(text, chat.TokenToolCall)
		if !found {
			return n
		}
		n++
		_, text, _ = strings.Cut(rest, chat.TokenToolCallEnd)
	}
}
