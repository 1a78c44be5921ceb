package rollout_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/chat"
	"temper/internal/rl"
	"temper/internal/run/record"
	"temper/internal/tool/builtin"
	"temper/sandbox"
	"temper/sandbox/status"
)

// TestTwoTools: a policy with python and the calculator calls both in one trajectory. The
// calculator runs no program; its calls are recorded, counted and read back as others are.
func TestTwoTools(t *testing.T) {
	tools := []string{builtin.Python, builtin.Calculator}
	small, err := chat.NewPlain(chat.Config{Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		f       *chat.Format
		opening string
		answer  string
	}{
		"small":    {small, "", "<answer>116</answer>"},
		"template": {rstar2(t, tools...), "</reason>", `</reason><answer>\boxed{116}</answer>`},
	} {
		t.Run(name, func(t *testing.T) {
			calculate := func(arguments string) string {
				return chat.RenderCall(chat.Call{Name: builtin.Calculator, Arguments: arguments})
			}
			first := c.opening + call("print(1)") + calculate(`{"expression": "1/3 + 0.5*2"}`) + calculate(`{"expression": "1/0"}`)
			second := c.opening + calculate(`{"expression": 3}`) + calculate(`{}`) + calculate(`{"expression": "1", "x": 2}`)
			programs := 0
			cfg := config()
			cfg.MaxCallsPerTurn = 0
			r := newRunnerWith(t, cfg, c.f, says(c.f, first, second, c.answer), execute(func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
				programs++
				return prints("one")(ctx, req)
			}))
			s := spec()
			s.MaxResponseTokens = 4000
			got := run(t, r, s)
			if got.Reward != 1 || programs != 1 {
				t.Errorf("reward %v after %d programs, want 1 after 1", got.Reward, programs)
			}
			checkResponses(t, got)
			if calls, failed := got.ToolCounts(); calls != 6 || failed != 4 {
				t.Errorf("%d calls, %d failed, want 6 and 4", calls, failed)
			}
			again := run(t, newRunnerWith(t, cfg, c.f, says(c.f, first, second, c.answer), prints("one")), s)
			if diff := cmp.Diff(got, again, clocks()); diff != "" {
				t.Errorf("another run differs:\n%s", diff)
			}
			checkStored(t, got)
		})
	}
}

func checkResponses(t *testing.T, got rl.Trajectory) {
	t.Helper()
	type answered struct {
		Name     string
		Status   status.Status
		Response string
	}
	var have []answered
	for _, turn := range got.Turns {
		for _, c := range turn.Calls {
			have = append(have, answered{c.Name, c.Status, c.Response})
			if (c.ID == "") != (c.Status == status.Malformed) || c.Name == builtin.Calculator && c.Arguments == "" {
				t.Errorf("call %+v", c)
			}
		}
	}
	const failed = "Error when executing tool: "
	want := []answered{
		{builtin.Python, status.OK, "one"}, {builtin.Calculator, status.OK, "4/3 (about 1.33333333333)"}, {builtin.Calculator, status.Error, "Error: division by zero"},
		{"", status.Malformed, failed + "argument 'expression' must be a string"}, {"", status.Malformed, failed + "argument 'expression' is missing"},
		{"", status.Malformed, failed + `unknown argument "x", want some of 'expression'`},
	}
	if diff := cmp.Diff(have, want); diff != "" {
		t.Errorf("calls: got -, want +\n%s", diff)
	}
}

// checkStored reads a trajectory back from both of its stored forms.
func checkStored(t *testing.T, tr rl.Trajectory) {
	t.Helper()
	lines, err := record.Lines([]rl.Trajectory{tr})
	if err != nil {
		t.Fatal(err)
	}
	packed, err := record.Pack(&tr)
	if err != nil {
		t.Fatal(err)
	}
	compact, err := record.Compact([]record.Packed{packed})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"lines": lines, "compact record": compact} {
		got, err := record.Decode(data)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %d trajectories, %v", name, len(got), err)
		}
		got[0].Text = tr.Text
		if diff := cmp.Diff(got[0], tr, clocks()); diff != "" {
			t.Errorf("%s: got -, want +\n%s", name, diff)
		}
	}
}
