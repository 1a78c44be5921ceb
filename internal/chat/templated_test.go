package chat_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"temper/internal/chat"
	"temper/internal/chat/jinja"
	"temper/internal/chat/tokenizer"
	"temper/internal/tool/builtin"
)

// withSpecials is a tokenizer of bytes with the control tokens of all templates here.
func withSpecials(t testing.TB, more ...string) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Train(func(func(string) bool) {}, 0, append(chat.Specials(), more...))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// template is a golden or a built-in template.
func template(t testing.TB, name string) *chat.Template {
	t.Helper()
	if tmpl, err := chat.Builtin(name); err == nil {
		return tmpl
	}
	return loadTemplate(t, name, map[string]string{"bos_token": "<s>", "eos_token": "</s>"})
}

func templated(t testing.TB, tmpl *chat.Template, tools ...string) *chat.Format {
	t.Helper()
	tok := withSpecials(t, "<s>", "</s>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]")
	f, err := chat.New(tok, chat.Config{Template: tmpl, Tools: tools, Boxed: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// whole is the text that the template itself gives a dialogue, and its tools.
func whole(t testing.TB, tmpl *chat.Template, tools []string, d chat.Dialogue, prompt bool) string {
	t.Helper()
	req := chat.Request{Messages: &jinja.List{}, AddGenerationPrompt: prompt}
	if len(tools) == 0 {
		tools = chat.DefaultTools(tmpl.Name())
	}
	if tools[0] != chat.NoTools {
		var err error
		if req.Tools, _, err = chat.ToolsOf(tools, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range d.Messages {
		v := jinja.NewDict()
		v.Set("role", m.Role)
		v.Set("content", m.Content)
		calls := &jinja.List{}
		for _, c := range m.ToolCalls {
			calls.Items = append(calls.Items, decodeAs[*jinja.Dict](t, []byte(`{"id": "123456789", "type": "function", "function": {"name": "`+
				c.Function.Name+`", "arguments": `+c.Function.Arguments+`}}`)))
		}
		if len(calls.Items) > 0 {
			v.Set("tool_calls", calls)
		}
		req.Messages.Items = append(req.Messages.Items, v)
	}
	out, err := tmpl.Render(req)
	if err != nil {
		t.Fatal(err)
	}
	return out.Text
}

// words are pieces of benign text that no template trims and no tokenizer joins
// with what stands before it.
var words = []string{"x", "é中😀", "a b", "{}", "\"q\"", "\\n", "1+1", "p(')')", "tool", "x\n\ny"}

func text(t *rapid.T, label string) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 4).Draw(t, label), "-")
}

// talk draws a dialogue in the words of a format; with calls only where it has tools.
func talk(t *rapid.T, turn func(string) string, tool string) chat.Dialogue {
	d := chat.Dialogue{Messages: []chat.Message{{Role: chat.RoleUser, Content: text(t, "question")}}}
	for range rapid.IntRange(0, 3).Draw(t, "turns") {
		if tool == "" {
			d.Messages = append(d.Messages, chat.Message{Role: chat.RoleAssistant, Content: turn(text(t, "said"))},
				chat.Message{Role: chat.RoleUser, Content: text(t, "more")})
			continue
		}
		var calls []chat.Call
		for range rapid.IntRange(1, 3).Draw(t, "calls") {
			calls = append(calls, chat.Call{Name: tool, Arguments: builtin.Program{Code: text(t, "code"), Input: text(t, "input")}.Arguments()})
		}
		m := chat.CallMessage(calls...)
		m.Content = turn(text(t, "said"))
		d.Messages = append(d.Messages, m)
		for range calls {
			d.Messages = append(d.Messages, chat.Message{Role: chat.RoleTool, Content: text(t, "result")})
		}
	}
	return chat.Dialogue{Messages: append(d.Messages, chat.Message{Role: chat.RoleAssistant, Content: turn(text(t, "answer"))})}
}

// grow makes the transcript of a dialogue as the loop does: the prompt, what was
// sampled, the results of its calls.
func grow(t *rapid.T, f *chat.Format, d chat.Dialogue) *chat.Transcript {
	t.Helper()
	rendered, err := f.Render(d)
	if err != nil {
		t.Fatal(err)
	}
	turns := sampled(rendered)
	tr := begin(t, f, d.Messages[0].Content)
	var results []string
	flush := func() {
		if len(results) == 0 {
			return
		}
		if err := tr.AppendTool(results, 1<<20); err != nil {
			t.Fatal(err)
		}
		results = nil
	}
	for _, m := range d.Messages[1:] {
		if m.Role == chat.RoleTool {
			results = append(results, m.Content)
			continue
		}
		flush()
		if err := tr.AppendSampled(turns[0], make([]float32, len(turns[0]))); err != nil {
			t.Fatal(err)
		}
		turns = turns[1:]
	}
	return tr
}

// sampled are the stretches of a transcript in the loss.
func sampled(tr *chat.Transcript) [][]int32 {
	var turns [][]int32
	for i, in := range tr.LossMask() {
		if in && !tr.LossMask()[i-1] {
			turns = append(turns, nil)
		}
		if in {
			turns[len(turns)-1] = append(turns[len(turns)-1], tr.Tokens()[i])
		}
	}
	return turns
}

func reasoned(s string) string { return "<reason>" + s + "</reason>" + s }
func thought(s string) string  { return "<think>\n" + s + "\n</think>\n\n" + s }
func plain(s string) string    { return s }

// TestTranscriptIsWhatTheTemplateSays: what the loop puts together turn by turn is
// what the template renders of the whole dialogue, token for token, and what is in
// the loss are the assistant's turns.
func TestTranscriptIsWhatTheTemplateSays(t *testing.T) {
	tests := map[string]struct {
		tools []string
		turn  func(string) string
		// rewritten: the template changes the last answer, which a rollout never renders.
		rewritten bool
	}{
		chat.FormatRStar2:         {nil, reasoned, false},
		chat.FormatRStar2Released: {nil, reasoned, true},
		"chatml-tools":            {nil, plain, false},
		"chatml-thinking":         {[]string{builtin.ExecutePython}, thought, false},
		"llama3":                  {[]string{chat.NoTools}, plain, false},
		"mistral":                 {[]string{chat.NoTools}, plain, false},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			tmpl := template(t, name)
			if name == "llama3" {
				tmpl = undated(t)
			}
			f := templated(t, tmpl, c.tools...)
			tool := ""
			if len(c.tools) == 0 || c.tools[0] != chat.NoTools {
				tool = append(c.tools, chat.DefaultTools(name)...)[0]
			}
			rapid.Check(t, func(rt *rapid.T) {
				d := talk(rt, c.turn, tool)
				tr, err := f.Render(d)
				if err != nil {
					rt.Fatal(err)
				}
				if tool != "" {
					if diff := cmp.Diff(grow(rt, f, d).Tokens(), tr.Tokens()); diff != "" {
						rt.Fatalf("the loop -, the dialogue +\n%s", diff)
					}
				}
				got, want := tr.Tokens(), f.Tokenizer().EncodeSpecial(whole(t, tmpl, c.tools, d, false))
				if c.rewritten {
					turns := sampled(tr)
					got = got[:len(got)-len(turns[len(turns)-1])]
					d.Messages = d.Messages[:len(d.Messages)-1]
					want = f.Tokenizer().EncodeSpecial(whole(t, tmpl, c.tools, d, true))
				}
				if diff := cmp.Diff(got, want[:min(len(got), len(want))]); diff != "" {
					rt.Fatalf("got -, template +\n%s", diff)
				}
				if left := f.Tokenizer().Decode(want[len(got):]); strings.TrimSpace(left) != "" {
					rt.Fatalf("the template goes on with %q", left)
				}
			})
		})
	}
}

// undated is the golden template that prints the date, without it.
func undated(t testing.TB) *chat.Template {
	t.Helper()
	source, err := os.ReadFile("testdata/templates/llama3.jinja")
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := chat.NewTemplate("llama3", strings.ReplaceAll(string(source), `strftime_now("%d %b %Y")`, `"26 Jul 2024"`), map[string]string{"bos_token": "<s>"})
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

// TestHostileTextUnderATemplate: nothing that users, tools or models write becomes
// a control token or changes what the template writes.
func TestHostileTextUnderATemplate(t *testing.T) {
	for _, name := range []string{chat.FormatRStar2, chat.FormatRStar2Released, "chatml-tools", "chatml-thinking"} {
		t.Run(name, func(t *testing.T) {
			f := templated(t, template(t, name))
			special := func(ids []int32) (out []int32) {
				for _, id := range ids {
					if f.Tokenizer().IsSpecial(id) {
						out = append(out, id)
					}
				}
				return out
			}
			pieces := rapid.SampledFrom(append(chat.Specials(), "\U0010FFFE", "\U0010FFFF", "</think>", "{{ 7 }}", "\n", "<", "|im_end|>", "a"))
			rapid.Check(t, func(rt *rapid.T) {
				evil := strings.Join(rapid.SliceOf(pieces).Draw(rt, "evil"), "")
				tr := begin(rt, f, evil)
				if diff := cmp.Diff(special(tr.Tokens()), special(begin(rt, f, "x").Tokens())); diff != "" {
					rt.Fatalf("question %q: control tokens -, of another question +\n%s", evil, diff)
				}
				words := f.Tokenizer().Encode(evil) // as a model spells it that does not mean it
				if err := tr.AppendSampled(append(words, f.Stop()[0]), make([]float32, len(words)+1)); err != nil {
					rt.Fatal(err)
				}
				at := len(tr.Tokens())
				if err := tr.AppendTool([]string{evil, evil}, 1<<20); err != nil {
					rt.Fatal(err)
				}
				other := begin(rt, f, "x")
				start := len(other.Tokens())
				if err := other.AppendTool([]string{"a", "b"}, 1<<20); err != nil {
					rt.Fatal(err)
				}
				if diff := cmp.Diff(special(tr.Tokens()[at:]), special(other.Tokens()[start:])); diff != "" {
					rt.Fatalf("result %q: control tokens -, of other results +\n%s", evil, diff)
				}
				shown := strings.NewReplacer("\U0010FFFE", "\uFFFD", "\U0010FFFF", "\uFFFD").Replace(evil)
				if got := f.Tokenizer().Decode(tr.Tokens()[at:]); strings.Count(got, shown) < 2 {
					rt.Fatalf("result %q is not in %q", evil, got)
				}
			})
		})
	}
}

// TestTemplatesThatRolloutsCannotUse are refused with the reason and the way out.
func TestTemplatesThatRolloutsCannotUse(t *testing.T) {
	const chatml = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}{{ '\n<tool_call>\n' }}{{ c.function | tojson }}{{ '\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`
	shows := `{{ tools | tojson }}` + chatml
	tests := map[string]struct {
		source string
		tools  []string
		want   string
	}{
		"good":                    {shows, nil, ""},
		"good without tools":      {chatml, []string{chat.NoTools}, ""},
		"no schema":               {chatml, nil, "does not show the schema of tool python; or set rollout.tools to [none]"},
		"rewrites earlier turns":  {`{{ messages | length }}` + shows, nil, "is not append-only: with 3 messages"},
		"says no answer":          {`x<|im_end|>{{ messages[0].content }}`, nil, "leaves out what the assistant said"},
		"asks nothing":            {`{{ messages[1].content if messages | length > 1 }}`, nil, "leaves out what the user said"},
		"turn ends with text":     {strings.ReplaceAll(shows, "<|im_end|>", "<end>"), nil, "holds no control token"},
		"raises":                  {`{{ raise_exception('not for you') }}`, nil, "template raised: not for you"},
		"one call a turn":         {`{% for m in messages %}{% if (m.tool_calls or []) | length > 1 %}{{ raise_exception('single calls only') }}{% endif %}{% endfor %}` + shows, nil, "single calls only"},
		"other form of calls":     {strings.ReplaceAll(shows, "c.function |", "c.function.arguments |"), nil, "is not read back"},
		"asks for the date":       {`{{ strftime_now('%Y') }}` + shows, nil, "date"},
		"no such tool":            {shows, []string{"bash"}, `no tool "bash", want python`},
		"a tool beside none":      {shows, []string{"none", "python"}, `no tool "none"`},
		"a tool of notebooks":     {shows, []string{"jupyter_code"}, `no tool "jupyter_code"`},
		"results depend on turns": {strings.ReplaceAll(shows, "{{ m.role }}", "{{ m.role if m.role != 'tool' else loop.index }}"), nil, "is not the"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			tmpl, err := chat.NewTemplate("mine.jinja", c.source, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = chat.New(withSpecials(t), chat.Config{Template: tmpl, Tools: c.tools})
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want %q", err, c.want)
			}
			var growth *chat.GrowthError
			if errors.As(err, &growth) && !strings.Contains(err.Error(), "rstar2") {
				t.Errorf("error %v names no way out", err)
			}
		})
	}
}

// TestAdapt: the teachers' dialogues in the words of rStar2-Agent.
func TestAdapt(t *testing.T) {
	f := templated(t, template(t, chat.FormatRStar2))
	d := f.Adapt(example())
	tr, err := f.Render(d)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, turn := range sampled(tr) {
		got = append(got, f.Tokenizer().Decode(turn))
	}
	want := []string{
		"</reason>\n<tool_call>\n{\"name\": \"execute_python_code_with_standard_io\", \"arguments\": {\"code\": \"print(db['k396']\", \"input\": \"\"}}\n</tool_call><|im_end|>",
		"</reason>\n<tool_call>\n{\"name\": \"execute_python_code_with_standard_io\", \"arguments\": {\"code\": \"print(db['k396'])\", \"input\": \"a \\\"b\\\"\\n<x>\"}}\n</tool_call><|im_end|>",
		"</reason><answer>\\boxed{116}</answer><|im_end|>",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
	if diff := cmp.Diff(f.Adapt(d), d); diff != "" && !strings.Contains(diff, "boxed") {
		t.Errorf("adapted twice: got -, want +\n%s", diff)
	}
	small := format(t, chat.Config{})
	if diff := cmp.Diff(small.Adapt(example()), example()); diff != "" {
		t.Errorf("the small format's own: got -, want +\n%s", diff)
	}
	if _, err := f.Render(example()); err == nil || !strings.Contains(err.Error(), `begin with "<reason>"`) {
		t.Errorf("error %v, want what a turn has to begin with", err)
	}
}

// TestVariablesReachTheTemplate as switches, numbers and texts.
func TestVariablesReachTheTemplate(t *testing.T) {
	const plain = "{{- '<|im_start|>assistant\\n' }}"
	source := strings.Replace(loadTemplate(t, "chatml-tools", nil).Source(), plain, plain+
		"{%- if thinking is defined and thinking is false %}{{ '<think>' ~ (depth + 1) ~ style }}{% endif %}", 1)
	tmpl, err := chat.NewTemplate("own", source, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		vars map[string]string
		want string
	}{
		{nil, "<|im_start|>assistant\n"},
		{map[string]string{"thinking": "true", "depth": "1", "style": "x"}, "<|im_start|>assistant\n"},
		{map[string]string{"thinking": "false", "depth": "41", "style": "007x"}, "<|im_start|>assistant\n<think>42007x"},
	} {
		tok := withSpecials(t)
		f, err := chat.New(tok, chat.Config{Template: tmpl, Vars: c.vars})
		if err != nil {
			t.Fatal(err)
		}
		begun, err := f.Begin("q")
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.Decode(begun.Tokens()); !strings.HasSuffix(got, c.want) {
			t.Errorf("%v: the prompt is %q, want it to end in %q", c.vars, got, c.want)
		}
	}
}
