package env

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"temper/internal/chat"
	"temper/internal/reward"
	"temper/internal/rl"
)

// TestReckonPrintsWhatPythonPrints: each program, right, wrong or naive, prints what the
// teacher says that it prints, and broken ones fail as stated.
func TestReckonPrintsWhatPythonPrints(t *testing.T) {
	type line struct{ Setup, Code, Want string }
	var lines []line
	for level := 1; level <= reckonMaxLevel; level++ {
		rng := rl.Rand(uint64(level))
		for range 150 {
			q := drawReckoning(rng, level)
			p := q.problem(level)
			programs := append([]snippet{q.program}, q.wrong...)
			if level == 2 {
				programs = append(programs, snippet{"print(task)", q.asked})
			}
			if level == 3 {
				programs = append(programs, q.naive)
			}
			for _, s := range programs {
				lines = append(lines, line{p.Fixture, s.code, s.prints})
			}
			for _, b := range brokenCode(q.program.code) {
				lines = append(lines, line{p.Fixture, b.code, b.result.ErrType + ": " + b.result.ErrMsg})
			}
			if !(Reckon{}).Verify(p, q.program.prints) {
				t.Errorf("%q: %s is not accepted", p.Prompt, q.program.prints)
			}
			for _, w := range q.wrong {
				if w.prints != q.program.prints && (Reckon{}).Verify(p, w.prints) {
					t.Errorf("%q: %s is accepted", p.Prompt, w.prints)
				}
			}
		}
	}
	data, err := json.Marshal(lines)
	if err != nil {
		t.Fatal(err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import contextlib, io, json, sys
for l in json.load(sys.stdin):
    names, out = {}, io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(l["Setup"], names)
            exec(compile(l["Code"], "<string>", "exec"), names)
        said = out.getvalue().rstrip("\n")
    except SyntaxError as e:
        said = "SyntaxError: " + e.msg
    except Exception as e:
        said = type(e).__name__ + ": " + str(e)
    if said != l["Want"]:
        print(l["Setup"], "|", l["Code"], "| prints", said, "| want", l["Want"])
`)
	cmd.Stdin = strings.NewReader(string(data))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestReckonTeacher is as imperfect as stated, and never answers without a call.
func TestReckonTeacher(t *testing.T) {
	for level := 1; level <= reckonMaxLevel; level++ {
		const n = 3000
		calls, failed, trusted, mended := 0, 0, 0, 0
		for i := range n {
			d, err := Reckon{}.Dialogue(3, i, level)
			if err != nil {
				t.Fatal(err)
			}
			last := ""
			for _, m := range d.Messages {
				if m.Role != chat.RoleTool {
					continue
				}
				calls++
				if last = m.Content; strings.Contains(m.Content, " at line 1") {
					failed++
				}
			}
			answer, _ := reward.ExtractAnswer(d.Messages[len(d.Messages)-1].Content)
			if last == "" || answer != strings.TrimSpace(last) {
				t.Fatalf("level %d, dialogue %d answers %q after %q", level, i, answer, last)
			}
			switch {
			case level < 3:
			case len(answer) > len("2997"): // no right answer is longer
				trusted++
			case strings.Contains(d.Messages[len(d.Messages)-3].ToolCalls[0].Function.Arguments, "(int("):
				mended++
			}
		}
		if share := float64(failed) / float64(calls); share < ReckonBroken-0.03 || share > ReckonBroken+0.03 {
			t.Errorf("level %d: %.3f of the calls fail, want %.2f", level, share, ReckonBroken)
		}
		if share := float64(trusted) / float64(trusted+mended); level == 3 && (share < ReckonTrust-0.04 || share > ReckonTrust+0.04) {
			t.Errorf("%.3f of the outputs that betray a mistake are answered, want %.2f", share, ReckonTrust)
		}
	}
}

// TestReckonHidesItsQuestion: at level 2 the prompt does not say what is asked, and at
// level 3 the same prompt has numbers and texts behind it.
func TestReckonHidesItsQuestion(t *testing.T) {
	ps, err := Reckon{}.Problems(1, Train, 2, 50)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		if !strings.HasPrefix(p.Prompt, "task ") || !strings.Contains(p.Fixture, "task = ") {
			t.Errorf("%q with %q", p.Prompt, p.Fixture)
		}
	}
	if ps, err = (Reckon{}).Problems(1, HeldOut, 3, 200); err != nil {
		t.Fatal(err)
	}
	texts := 0
	for _, p := range ps {
		if strings.Contains(p.Fixture, "'") {
			texts++
		}
	}
	if texts < 60 || texts > 140 {
		t.Errorf("%d of 200 problems hold texts, want half", texts)
	}
}
