package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/cli"
)

// TestVerifyLines: one line out for each line in, in the same order, also for those that
// cannot be judged, as long as --max-bad allows them.
func TestVerifyLines(t *testing.T) {
	long := `{"gold": "1", "response": "` + strings.Repeat("x", 17<<20) + `"}`
	in := strings.Join([]string{
		`{"gold": "5", "response": "so \\boxed{5}"}`, `{"gold": 5, "response": "\\boxed{6}"}`, "", `{"gold": ["0.5"], "response": "\\boxed{1/2}"}`,
		`{"gold": null, "response": "5"}`, `{"gold": ["1", "2"], "response": "5"}`, `{"gold": true, "response": "5"}`, `{"gold": "", "response": "5"}`,
		`{"gold": "5"}`, `{"gold": "5", "response": 5}`, "no JSON", long, "{\"gold\": \"5\", \"response\": \"\xff\"}", `{"gold": "5", "response": "no box"}`,
	}, "\n") + "\n"
	run := func(args ...string) (methods []string, errs string, err error) {
		cmd := verifyCommand()
		var out, stderr bytes.Buffer
		cmd.SetIn(strings.NewReader(in))
		cmd.SetOut(&out)
		cmd.SetErr(&stderr)
		cmd.SetArgs(append([]string{"--mode", "released"}, args...))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err = cmd.Execute()
		for line := range strings.Lines(out.String()) {
			var v struct {
				Correct bool
				Method  string
			}
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if v.Correct {
				v.Method = "right"
			}
			methods = append(methods, v.Method)
		}
		return methods, stderr.String(), err
	}
	got, errs, err := run("--max-bad", "9")
	want := []string{"right", "exact", "right", "bad", "bad", "bad", "bad", "bad", "bad", "bad", "bad", "bad", "none"}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for _, want := range []string{
		"line 5: gold: is null, want a text", `line 6: gold: is ["1", "2"], want`, "line 7: gold: is true", "line 8: gold: ", `line 9: want the fields "gold" and "response"`,
		"line 10: ", "line 11: ", "line 12: is longer than 16 MiB", "line 13: not UTF-8",
	} {
		if !strings.Contains(errs, "standard input: "+want) {
			t.Errorf("stderr lacks %q:\n%s", want, errs)
		}
	}
	if got, _, err := run(); len(got) != 3 || cli.ExitCode(err) != cli.ExitUser || !strings.Contains(err.Error(), "line 5") {
		t.Errorf("without --max-bad: %v, %v", got, err)
	}
	if got, _, err := run("--max-bad", "8"); len(got) != 11 || cli.ExitCode(err) != cli.ExitUser || !strings.Contains(err.Error(), "9 lines cannot be judged, and --max-bad is 8") {
		t.Errorf("above --max-bad: %v, %v", got, err)
	}
}
