package chatclient_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/openai/chatclient"
	"temper/sandbox"
)

// TestAsk follows a call to the answer: the program runs, its result goes back under the id
// of the call, and a person sees all of it in order.
func TestAsk(t *testing.T) {
	s := &scripted{turns: []chatclient.Turn{
		calls("I run it.", call("c1", `{"code": "print(1)\n", "input": "x"}`)), says("one"), says("again"),
	}}
	own, fake := tools(t, func(c *chatclient.ToolConfig) { c.Fixture = "db = 1" })
	talk, err := chatclient.New(s, own, "be brief", 4)
	if err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	got, err := talk.Ask(t.Context(), "what?", shown(&seen))
	if err != nil {
		t.Fatal(err)
	}
	if got.Content != "one" || got.Finish != "stop" || len(got.Turns) != 2 || got.Usage != (chatclient.Usage{Prompt: 30, Completion: 7}) {
		t.Errorf("answer %+v", got)
	}
	want := "I run it.\n--- call python\n    print(1)\n    \n    <<< x\n--- result: ok\n    ran print(1)\n    x\none"
	if diff := cmp.Diff(want, seen.String()); diff != "" {
		t.Errorf("shown, want -, got +\n%s", diff)
	}
	if r := fake.Requests(); len(r) != 1 || r[0].Code != "print(1)\n" || r[0].Stdin != "x" || r[0].Fixture != "db = 1" {
		t.Errorf("ran %+v", r)
	}
	if _, err := talk.Ask(t.Context(), "and?", shown(&seen)); err != nil {
		t.Fatal(err)
	}
	history := []chatclient.Message{
		{Role: "system", Content: "be brief"}, {Role: "user", Content: "what?"},
		{Role: "assistant", Content: "I run it.", ToolCalls: []chatclient.Call{call("c1", `{"code": "print(1)\n", "input": "x"}`)}},
		{Role: "tool", Content: "ran print(1)\nx", ToolCallID: "c1"}, {Role: "assistant", Content: "one"}, {Role: "user", Content: "and?"},
	}
	if diff := cmp.Diff(history, s.asked[2]); diff != "" {
		t.Errorf("history, want -, got +\n%s", diff)
	}
	talk.Reset(t.Context())
	s.turns = []chatclient.Turn{says("new")}
	if _, err := talk.Ask(t.Context(), "now?", shown(&seen)); err != nil || len(s.asked[3]) != 2 {
		t.Errorf("after a reset the model reads %+v (%v)", s.asked[3], err)
	}
}

// TestAskWithCalculator: a tool that runs in Go answers beside Python, without a program.
func TestAskWithCalculator(t *testing.T) {
	sum := chatclient.Call{ID: "c1", Type: "function", Function: chatclient.Function{Name: "calculator", Arguments: `{"expression": "2**0.5"}`}}
	root := chatclient.Call{ID: "c2", Type: "function", Function: chatclient.Function{Name: "calculator", Arguments: `{"expression": "2**10"}`}}
	s := &scripted{turns: []chatclient.Turn{calls("", sum, root), says("1024")}}
	own, fake := tools(t, func(c *chatclient.ToolConfig) { c.Names = []string{"python", "calculator"} })
	talk, err := chatclient.New(s, own, "", 4)
	if err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	if _, err := talk.Ask(t.Context(), "what?", shown(&seen)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"expression": "2**10"}`, "--- result: ok\n    1024", "--- result: error\n    Error: the exponent of ** must be an integer"} {
		if !strings.Contains(seen.String(), want) {
			t.Errorf("shown\n%s\nwant in it %q", seen.String(), want)
		}
	}
	if schemas, err := own.Schemas(); err != nil || !strings.Contains(string(schemas), `"name": "calculator"`) || len(fake.Requests()) > 0 {
		t.Errorf("schemas %s (%v) and %d programs", schemas, err, len(fake.Requests()))
	}
}

// TestCallsThatCannotRun get an answer that says why: the model can mend them.
func TestCallsThatCannotRun(t *testing.T) {
	for name, c := range map[string]struct {
		turn chatclient.Turn
		want string
	}{
		"no tool of that name":     {calls("", chatclient.Call{ID: "a", Function: chatclient.Function{Name: "rm", Arguments: "{}"}}), "no tool is named"},
		"no JSON":                  {calls("", call("a", `{"code": `)), "Failed to decode tool call"},
		"an argument is left out":  {calls("", call("a", `{}`)), "argument 'code' is missing"},
		"text that no server read": {says("<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": 7}}\n</tool_call>"), "must be a string"},
	} {
		s := &scripted{turns: []chatclient.Turn{c.turn, says("sorry")}}
		own, fake := tools(t, nil)
		talk, err := chatclient.New(s, own, "", 4)
		if err != nil {
			t.Fatal(err)
		}
		got, err := talk.Ask(t.Context(), "q", func(chatclient.Delta) error { return nil })
		if err != nil || got.Content != "sorry" || len(got.Results) != 1 || !strings.Contains(got.Results[0].Content, c.want) || got.Results[0].Status != "malformed" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if len(fake.Requests()) > 0 {
			t.Errorf("%s: it ran", name)
		}
	}
}

// TestLimits: the limit of turns, the limit of tokens and that of calls end an answer, and
// what nobody answers is no call in the history.
func TestLimits(t *testing.T) {
	s := &scripted{turns: []chatclient.Turn{calls("", call("a", `{"code": "1"}`), call("b", `{"code": "2"}`)), calls("", call("c", `{"code": "3"}`)), says("x")}}
	own, fake := tools(t, func(c *chatclient.ToolConfig) { c.MaxCallsPerTurn = 1 })
	talk, err := chatclient.New(s, own, "", 2)
	if err != nil {
		t.Fatal(err)
	}
	quiet := func(chatclient.Delta) error { return nil }
	got, err := talk.Ask(t.Context(), "q", quiet)
	if err != nil || got.Finish != chatclient.FinishMaxTurns || len(fake.Requests()) != 1 || got.Results[1].Status != sandbox.StatusRefused {
		t.Errorf("%+v after %d programs (%v)", got, len(fake.Requests()), err)
	}
	if _, err := talk.Ask(t.Context(), "q2", quiet); err != nil {
		t.Fatal(err)
	}
	last := s.asked[2][len(s.asked[2])-2]
	if len(last.ToolCalls) > 0 || !strings.Contains(last.Content, `{"name": "python", "arguments": {"code": "3"}}`) {
		t.Errorf("the history ends with %+v", last)
	}
	if _, err := chatclient.New(s, nil, "", 0); err == nil {
		t.Error("no turns at all")
	}
	long := &scripted{turns: []chatclient.Turn{{Content: "too", Finish: "length"}}}
	if talk, err = chatclient.New(long, own, "", 2); err != nil {
		t.Fatal(err)
	}
	if got, err := talk.Ask(t.Context(), "q", quiet); err != nil || got.Finish != chatclient.FinishLength {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestFailuresLeaveAHistory that the next question can follow.
func TestFailuresLeaveAHistory(t *testing.T) {
	quiet := func(chatclient.Delta) error { return nil }
	down := errors.New("down")
	s := &scripted{during: func(context.Context, func(chatclient.Delta) error) error { return down }}
	talk, err := chatclient.New(s, nil, "", 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := talk.Ask(t.Context(), "lost", quiet); !errors.Is(err, down) {
		t.Errorf("failed with %v", err)
	}
	ctx, cut := context.WithCancel(t.Context())
	s.during = func(ctx context.Context, _ func(chatclient.Delta) error) error {
		cut()
		return ctx.Err()
	}
	if got, err := talk.Ask(ctx, "cut", quiet); !errors.Is(err, context.Canceled) || got.Finish != chatclient.FinishCut {
		t.Errorf("%+v, %v", got, err)
	}
	s.during, s.turns = nil, []chatclient.Turn{says("x")}
	if _, err := talk.Ask(t.Context(), "next", quiet); err != nil {
		t.Fatal(err)
	}
	want := []chatclient.Message{{Role: "user", Content: "cut"}, {Role: "assistant", Content: "half"}, {Role: "user", Content: "next"}}
	if diff := cmp.Diff(want, s.asked[2]); diff != "" {
		t.Errorf("history, want -, got +\n%s", diff)
	}
}

// TestABusySandboxIsAskedAgain, and one that fails for good is an error, not a result.
func TestABusySandboxIsAskedAgain(t *testing.T) {
	own, fake := tools(t, nil)
	tries := 0
	fake.Func = func(sandbox.Request) (sandbox.Result, error) {
		if tries++; tries == 1 {
			return sandbox.Result{}, &sandbox.Overloaded{RetryAfter: 1}
		}
		return sandbox.Result{Status: sandbox.StatusOK, Value: "2"}, nil
	}
	s := &scripted{turns: []chatclient.Turn{calls("", call("a", `{"code": "1+1"}`)), says("2")}}
	talk, err := chatclient.New(s, own, "", 4)
	if err != nil {
		t.Fatal(err)
	}
	quiet := func(chatclient.Delta) error { return nil }
	if got, err := talk.Ask(t.Context(), "q", quiet); err != nil || got.Results[0].Content != "2" {
		t.Errorf("%+v, %v", got, err)
	}
	broken := errors.New("broken")
	fake.Func = func(sandbox.Request) (sandbox.Result, error) { return sandbox.Result{}, broken }
	s.turns = []chatclient.Turn{calls("", call("a", `{"code": "1+1"}`))}
	if _, err := talk.Ask(t.Context(), "q", quiet); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestNewTools(t *testing.T) {
	for _, names := range [][]string{{"rm"}, {"none"}, {"python", "python"}} {
		if _, err := chatclient.NewTools(chatclient.ToolConfig{Names: names}); err == nil {
			t.Errorf("tools %v", names)
		}
	}
	own, _ := tools(t, func(c *chatclient.ToolConfig) { c.SessionTools = []string{"python"} })
	schemas, err := own.Schemas()
	if err != nil || !strings.Contains(string(schemas), "earlier calls") || !strings.HasPrefix(string(schemas), `[{"type": "function"`) {
		t.Errorf("schemas %s, %v", schemas, err)
	}
}

// TestSessionCallsShareAProcess until the talk begins anew.
func TestSessionCallsShareAProcess(t *testing.T) {
	own, fake := tools(t, func(c *chatclient.ToolConfig) { c.SessionTools = []string{"python"} })
	s := &scripted{turns: []chatclient.Turn{
		calls("", call("a", `{"code": "x = 1"}`), call("b", `{"code": "x"}`)), says("1"), calls("", call("c", `{"code": "x"}`)), says("?"),
	}}
	talk, err := chatclient.New(s, own, "", 4)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := talk.Ask(t.Context(), "q", func(chatclient.Delta) error { return nil }); err != nil {
			t.Fatal(err)
		}
		talk.Reset(t.Context())
	}
	r := fake.Requests()
	if len(r) != 3 || r[0].Session == "" || r[0].Session != r[1].Session || r[2].Session == r[0].Session {
		t.Errorf("sessions %s", fmt.Sprint(r))
	}
}
