package chat_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"temper/internal/chat"
	"temper/internal/tool/builtin"
	"temper/sandbox/status"
)

// example is a dialogue with a failing call, a good one and an answer.
func example() chat.Dialogue {
	return chat.Dialogue{Messages: []chat.Message{
		{Role: chat.RoleUser, Content: "k396?"},
		chat.CallMessage(chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: "print(db['k396']"}.Arguments()}),
		{Role: chat.RoleTool, Content: "SyntaxError at line 1: '(' was never closed"},
		chat.CallMessage(chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: "print(db['k396'])", Input: "a \"b\"\n<x>"}.Arguments()}),
		{Role: chat.RoleTool, Content: "116"},
		{Role: chat.RoleAssistant, Content: "<answer>116</answer>"},
	}}
}

func format(t testing.TB, cfg chat.Config) *chat.Format {
	t.Helper()
	tok, err := chat.TrainTokenizer(cfg, []chat.Dialogue{example(), example()}, 40)
	if err != nil {
		t.Fatal(err)
	}
	f, err := chat.New(tok, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// begin starts a transcript that has to start.
func begin(t interface{ Fatal(...any) }, f *chat.Format, user string) *chat.Transcript {
	tr, err := f.Begin(user)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

const rendered = `<|im_start|>user
k396?<|im_end|>
<|im_start|>assistant
<tool_call>
{"name": "python", "arguments": {"code": "print(db['k396']"}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
SyntaxError at line 1: '(' was never closed
</tool_response><|im_end|>
<|im_start|>assistant
<tool_call>
{"name": "python", "arguments": {"code": "print(db['k396'])", "input": "a \"b\"\n<x>"}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
116
</tool_response><|im_end|>
<|im_start|>assistant
<answer>116</answer><|im_end|>`

func TestRenderText(t *testing.T) {
	f := format(t, chat.Config{})
	tr, err := f.Render(example())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f.Tokenizer().Decode(tr.Tokens()), rendered); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
	if diff := cmp.Diff(tr.Tokens(), f.Tokenizer().EncodeSpecial(rendered)); diff != "" {
		t.Errorf("tokens differ from those of the whole text: got -, want +\n%s", diff)
	}
}

// TestLossMaskCoversAssistantText: the masked-in tokens are the assistant's
// words with their end tokens and nothing else.
func TestLossMaskCoversAssistantText(t *testing.T) {
	f := format(t, chat.Config{})
	tr, err := f.Render(example())
	if err != nil {
		t.Fatal(err)
	}
	var in []int32
	for i, id := range tr.Tokens() {
		if tr.LossMask()[i] {
			in = append(in, id)
		}
	}
	var want strings.Builder
	for _, m := range example().Messages {
		if m.Role == chat.RoleAssistant {
			text, err := chat.AssistantText(m)
			if err != nil {
				t.Fatal(err)
			}
			want.WriteString(text + chat.TokenEnd)
		}
	}
	if diff := cmp.Diff(f.Tokenizer().Decode(in), want.String()); diff != "" {
		t.Errorf("in the loss: got -, want +\n%s", diff)
	}
}

func TestSystemAndToolsComeFirst(t *testing.T) {
	f := format(t, chat.Config{SystemPrompt: "Be brief.", ToolsInPrompt: true})
	got := f.Tokenizer().Decode(begin(t, f, "k396?").Tokens())
	if !strings.HasPrefix(got, "<|im_start|>system\nBe brief.\n\n# Tools") || !strings.Contains(got, `"name": "python"`) ||
		!strings.HasSuffix(got, "</tool_call><|im_end|>\n<|im_start|>user\nk396?<|im_end|>\n<|im_start|>assistant\n") {
		t.Errorf("prompt is %q", got)
	}
}

// TestUntrustedTextCannotForgeControl: whatever a user or a tool writes, the
// control tokens are those of the template.
func TestUntrustedTextCannotForgeControl(t *testing.T) {
	f := format(t, chat.Config{})
	count := func(tokens []int32) (n int) {
		for _, id := range tokens {
			if f.Tokenizer().IsSpecial(id) {
				n++
			}
		}
		return n
	}
	rapid.Check(t, func(t *rapid.T) {
		evil := strings.Join(rapid.SliceOf(rapid.SampledFrom(append(chat.Specials(), "a", "\n", "|im_end|>", "<"))).Draw(t, "evil"), "")
		tr := begin(t, f, evil)
		if got, want := count(tr.Tokens()), count(begin(t, f, "x").Tokens()); got != want {
			t.Fatalf("user text %q: %d control tokens, want %d", evil, got, want)
		}
		before := len(tr.Tokens())
		if err := tr.AppendTool([]string{evil, evil}, 1<<20); err != nil {
			t.Fatal(err)
		}
		if got := count(tr.Tokens()[before:]); got != 2*2+3 {
			t.Fatalf("tool text %q: %d control tokens, want 7", evil, got)
		}
		if got := f.Tokenizer().Decode(tr.Tokens()[before:]); strings.Count(got, evil) < 2 {
			t.Fatalf("tool text %q is not in %q", evil, got)
		}
	})
}

// TestTranscriptOnlyGrows: earlier tokens, masks and logprobs stay as they were
// and the three stay equally long.
func TestTranscriptOnlyGrows(t *testing.T) {
	f := format(t, chat.Config{})
	rapid.Check(t, func(t *rapid.T) {
		tr := begin(t, f, "k1?")
		sampled := 0
		for range rapid.IntRange(1, 6).Draw(t, "turns") {
			before := slices.Clone(tr.Tokens())
			if rapid.Bool().Draw(t, "tool") {
				_ = tr.AppendTool([]string{rapid.String().Draw(t, "result")}, rapid.IntRange(0, 200).Draw(t, "budget"))
			} else {
				tokens := rapid.SliceOfN(rapid.Int32Range(0, 300), 1, 9).Draw(t, "sampled")
				if err := tr.AppendSampled(tokens, make([]float32, len(tokens))); err != nil {
					t.Fatal(err)
				}
				sampled += len(tokens)
			}
			if diff := cmp.Diff(tr.Tokens()[:len(before)], before); diff != "" {
				t.Fatalf("earlier tokens changed:\n%s", diff)
			}
		}
		n := 0
		for _, m := range tr.LossMask() {
			if m {
				n++
			}
		}
		if n != sampled || len(tr.LossMask()) != len(tr.Tokens()) || len(tr.Logprobs()) != len(tr.Tokens()) {
			t.Fatalf("%d in the mask for %d sampled; lengths %d %d %d", n, sampled, len(tr.Tokens()), len(tr.LossMask()), len(tr.Logprobs()))
		}
	})
}

func TestAppendToolThatDoesNotFitAddsNothing(t *testing.T) {
	f := format(t, chat.Config{})
	tr := begin(t, f, "k1?")
	if err := tr.AppendTool([]string{"116"}, 1<<20); err != nil {
		t.Fatal(err)
	}
	size := tr.ResponseTokens()
	for budget, want := range map[int]error{size: chat.ErrTooLong, size + 1: nil} {
		tr := begin(t, f, "k1?")
		if err := tr.AppendTool([]string{"116"}, budget); !errors.Is(err, want) {
			t.Errorf("response of %d tokens in %d: error %v, want %v", size, budget, err, want)
		}
		if want != nil && tr.ResponseTokens() != 0 {
			t.Errorf("%d tokens were added", tr.ResponseTokens())
		}
	}
	if err := tr.AppendSampled([]int32{1}, nil); err == nil {
		t.Error("sampled tokens without logprobs accepted")
	}
}

func TestRenderRefusesBadOrder(t *testing.T) {
	f := format(t, chat.Config{})
	user := chat.Message{Role: chat.RoleUser, Content: "q"}
	said := chat.Message{Role: chat.RoleAssistant, Content: "a"}
	tool := chat.Message{Role: chat.RoleTool, Content: "r"}
	bad := chat.Message{Role: chat.RoleAssistant, ToolCalls: []chat.ToolCall{{Function: chat.Function{Name: "python", Arguments: "{"}}}}
	for name, messages := range map[string][]chat.Message{
		"empty": {}, "assistant first": {said}, "tool after user": {user, tool, said}, "ends with tool": {user, said, tool},
		"two assistants": {user, said, said}, "unknown role": {user, {Role: "robot"}}, "bad arguments": {user, bad},
	} {
		if _, err := f.Render(chat.Dialogue{Messages: messages}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	ok := []chat.Message{{Role: chat.RoleSystem, Content: "s"}, user, said, tool, tool, said, user, said}
	if _, err := f.Render(chat.Dialogue{Messages: ok}); err != nil {
		t.Errorf("good order refused: %v", err)
	}
}

func TestOutcomeText(t *testing.T) {
	tests := map[string]struct {
		outcome chat.Outcome
		max     int
		want    string
	}{
		"stdout":           {chat.Outcome{Status: status.OK, Stdout: "k116\n"}, 0, "k116"},
		"value":            {chat.Outcome{Status: status.OK, Value: "'k116'"}, 0, "'k116'"},
		"both":             {chat.Outcome{Status: status.OK, Stdout: "a\n\n", Value: "6"}, 0, "a\n\n6"},
		"nothing":          {chat.Outcome{Status: status.OK}, 0, "(no output)"},
		"exception":        {chat.Outcome{Status: status.Error, ErrType: "NameError", ErrMsg: "name 'bd' is not defined", ErrLine: 1}, 0, "NameError at line 1: name 'bd' is not defined"},
		"bare exception":   {chat.Outcome{Status: status.Error, ErrType: "ValueError"}, 0, "ValueError"},
		"printed before":   {chat.Outcome{Status: status.Error, Stdout: "1\n", ErrType: "KeyError", ErrMsg: "2", ErrLine: 3}, 0, "1\nKeyError at line 3: 2"},
		"exit":             {chat.Outcome{Status: status.Error, ExitCode: 3}, 0, "exit status 3"},
		"exit with stderr": {chat.Outcome{Status: status.Error, Stderr: "bad\n", ExitCode: 1}, 0, "bad\nexit status 1"},
		"time limit":       {chat.Outcome{Status: status.TimeLimit, Stdout: "1\n2\n", Reason: "after 2.013s"}, 0, "TimeLimit: the program took too long"},
		"refused":          {chat.Outcome{Status: status.Refused, Reason: "at most 2 calls per turn"}, 0, "Refused: at most 2 calls per turn"},
		"cut":              {chat.Outcome{Status: status.OK, Stdout: "\u00e9bcdefghij"}, 5, "\u00e9bc...(truncated)...ij"},
		"just fits":        {chat.Outcome{Status: status.OK, Stdout: "\u00e9bcde"}, 5, "\u00e9bcde"},
	}
	for name, c := range tests {
		if got := c.outcome.Text(c.max); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestPromptSaysWhichToolsKeepTheirVariables, and says nothing else differently.
func TestPromptSaysWhichToolsKeepTheirVariables(t *testing.T) {
	const note = " Names that earlier calls of the conversation defined are still there."
	prompt := func(cfg chat.Config) string {
		f, err := chat.NewPlain(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return f.Tokenizer().Decode(begin(t, f, "q").Tokens())
	}
	tmpl, err := chat.Builtin(chat.FormatRStar2)
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]chat.Config{
		"small ChatML": {Tools: []string{builtin.Python}},
		"template":     {Template: tmpl, Tools: []string{builtin.ExecutePython, builtin.Python}},
	} {
		without := prompt(cfg)
		cfg.SessionTools = []string{builtin.Python}
		with := prompt(cfg)
		before, after, found := strings.Cut(with, note)
		if !found || before+after != without || !strings.HasSuffix(before, "or the error that ended it.") {
			t.Errorf("%s: prompt with a session is %q", name, with)
		}
		f, err := chat.NewPlain(cfg)
		if err != nil {
			t.Fatal(err)
		}
		// The tools of a template are arguments of it, those of the small ChatML are not.
		if got, want := strings.Count(f.Source(), note), strings.Count("small ChatML", name); got != want {
			t.Errorf("%s: the exported template has the note %d times, want %d", name, got, want)
		}
	}
}
