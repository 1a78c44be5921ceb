package rollout_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/reward"
	"temper/internal/rl"
	"temper/internal/tool/builtin"
	"temper/sandbox"
)

// rstar2 is the format of rStar2-Agent over a tokenizer of bytes.
func rstar2(t testing.TB, tools ...string) *chat.Format {
	t.Helper()
	tmpl, err := chat.Builtin(chat.FormatRStar2)
	if err != nil {
		t.Fatal(err)
	}
	f, err := chat.NewPlain(chat.Config{Template: tmpl, Tools: tools, Boxed: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func rstarCall(name, arguments string) string {
	return "</reason>" + chat.TokenToolCall + `{"name": "` + name + `", "arguments": ` + arguments + `}` + chat.TokenToolCallEnd
}

// TestToolsOfATemplate: each Python tool runs code with its standard input, and
// what the schema does not allow is answered, not run.
func TestToolsOfATemplate(t *testing.T) {
	f := rstar2(t, builtin.ExecutePython, builtin.PythonStandardIO, builtin.Python)
	turn := rstarCall(builtin.ExecutePython, `{"code": "print(input())", "input": "7"}`) +
		rstarCall(builtin.PythonStandardIO, `{"code": "b", "input": ""}`) + rstarCall(builtin.Python, `{"code": "c"}`) +
		rstarCall(builtin.ExecutePython, `{"code": "d"}`) + rstarCall("bash", `{"code": "e"}`) + chat.TokenToolCall + "{"
	var ran []string
	cfg := config()
	cfg.MaxCallsPerTurn = 0
	r := newRunnerWith(t, cfg, f, says(f, turn, `</reason><answer>\boxed{116}</answer>`), execute(func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
		ran = append(ran, req.Code+"|"+req.Stdin)
		return prints("116")(ctx, req)
	}))
	s := spec()
	s.MaxResponseTokens = 4000
	got := run(t, r, s)
	if want := []string{"print(input())|7", "b|", "c|"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
	var responses []string
	for _, c := range got.Turns[0].Calls {
		responses = append(responses, string(c.Status)+": "+c.Response)
	}
	want := []string{
		"ok: 116", "ok: 116", "ok: 116", "malformed: Error when executing tool: argument 'input' is missing",
		`malformed: Error when executing tool: no tool is named "bash"`, "malformed: Failed to decode tool call: not closed",
	}
	if diff := cmp.Diff(responses, want); diff != "" {
		t.Errorf("responses: got -, want +\n%s", diff)
	}
	if got.Reward != 1 || got.Answer != "116" || got.AnswerTags != 1 {
		t.Errorf("reward %v for answer %q of %d tags", got.Reward, got.Answer, got.AnswerTags)
	}
}

// TestBoxedAnswers: under rStar2-Agent's format an answer stands in a box within
// the tags, in a turn of the policy.
func TestBoxedAnswers(t *testing.T) {
	f := rstar2(t)
	for text, want := range map[string]float64{
		`</reason><answer>so \boxed{116}.</answer>`: 1, `</reason><answer>116</answer>`: 0, `</reason>\boxed{116}`: 0, `<answer>\boxed{117}</answer>`: 0,
	} {
		s := spec()
		s.MaxResponseTokens = 4000
		if got := run(t, newRunner(t, f, says(f, text), prints("")), s); got.Reward != want || got.StopReason != rl.StopAnswered {
			t.Errorf("%s: reward %v (%s), want %v", text, got.Reward, got.StopReason, want)
		}
	}
}

// TestAnswerModes: what a run says of answers counts for formulas, and where they are found
// for every environment.
func TestAnswerModes(t *testing.T) {
	f := rstar2(t)
	for _, c := range []struct {
		mode      reward.Mode
		env, text string
		want      float64
	}{
		{reward.Paper, "math", `<answer>\boxed{116}</answer>`, 1}, {reward.Paper, "math", `<answer>116</answer>`, 0},
		{reward.Tag, "math", `<answer>232/2</answer>`, 1}, {reward.Tag, "chase", `<answer>116</answer>`, 1},
		{reward.Integer, "math", `<answer>116</answer>`, 1}, {reward.Integer, "math", `<answer>\boxed{116.0}</answer>`, 1}, {reward.Integer, "math", `<answer>115.99999</answer>`, 0},
		{reward.Released, "math", `so \boxed{116}`, 1}, {reward.Released, "math", `The answer is 116.`, 1}, {reward.Released, "math", `so \boxed{11600}`, 0}, {reward.Released, "math", `none`, 0},
		{reward.Released, "chase", `so \boxed{116}`, 0}, {reward.Released, "chase", `<answer>116</answer>`, 1},
	} {
		cfg, s := config(), spec()
		cfg.Answer, s.MaxResponseTokens, s.Problem.Env = c.mode, 4000, c.env
		if got := run(t, newRunnerWith(t, cfg, f, says(f, "</reason>"+c.text), prints("")), s); got.Reward != c.want || got.StopReason != rl.StopAnswered {
			t.Errorf("%s, %s, %s: reward %v (%s), want %v", c.mode, c.env, c.text, got.Reward, got.StopReason, c.want)
		}
	}
}

// TestRolloutEqualsAdaptedDialogue: a policy that says what a teacher says under a
// template gives the tokens that supervised training would have.
func TestRolloutEqualsAdaptedDialogue(t *testing.T) {
	f := rstar2(t)
	for i := range 20 {
		d, err := env.Chase{}.Dialogue(4, i, 3)
		if err != nil {
			t.Fatal(err)
		}
		d = f.Adapt(d)
		want, err := f.Render(d)
		if err != nil {
			t.Fatal(err)
		}
		var texts, results []string
		from := 0
		for at, in := range append(slices.Clone(want.LossMask()), false) {
			if in && from == 0 {
				from = at
			}
			if !in && from > 0 {
				texts = append(texts, strings.TrimSuffix(f.Tokenizer().Decode(want.Tokens()[from:at]), chat.TokenEnd))
				from = 0
			}
		}
		for _, m := range d.Messages {
			if m.Role == chat.RoleTool {
				results = append(results, m.Content)
			}
		}
		r := newRunner(t, f, says(f, texts...), execute(func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
			text := results[0]
			results = results[1:]
			return prints(text)(ctx, req)
		}))
		s := spec()
		s.Problem.Prompt, s.MaxTurns, s.MaxResponseTokens = d.Messages[0].Content, 100, 20000
		got := run(t, r, s)
		if diff := cmp.Diff(got.Tokens, want.Tokens()); diff != "" {
			t.Fatalf("dialogue %d: tokens: got -, want +\n%s", i, diff)
		}
		if diff := cmp.Diff(got.LossMask, want.LossMask()); diff != "" {
			t.Fatalf("dialogue %d: mask: got -, want +\n%s", i, diff)
		}
	}
}
