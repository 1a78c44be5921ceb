package dataset_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/env"
	"temper/internal/rl"
)

func numbered(n int) []rl.Problem {
	var out []rl.Problem
	for i := range n {
		out = append(out, rl.Problem{ID: fmt.Sprint("p", i), Env: "chase", Prompt: "q", Answer: "a"})
	}
	return out
}

// TestLedgerHandsOutEachProblemOncePerEpoch, none twice in a step, none removed,
// and the same whoever asks and in which order.
func TestLedgerHandsOutEachProblemOncePerEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "problems")
		removed := map[string]bool{}
		for range rapid.IntRange(0, n-1).Draw(t, "removals") {
			removed[fmt.Sprint("p", rapid.IntRange(1, n-1).Draw(t, "removed"))] = true
		}
		left := n - len(removed)
		perStep := rapid.IntRange(1, left).Draw(t, "per step")
		seed := rapid.Uint64().Draw(t, "seed")
		l, err := dataset.NewLedger(seed, numbered(n), perStep, removed)
		if err != nil {
			t.Fatal(err)
		}
		times := map[string]int{}
		handed := 0
		for step := range 4 * left {
			problems := l.Step(step)
			fresh, err := dataset.NewLedger(seed, numbered(n), perStep, removed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fresh.Step(step), problems); diff != "" {
				t.Fatalf("step %d differs after a restart:\n%s", step, diff)
			}
			inStep := map[string]bool{}
			for _, p := range problems {
				if inStep[p.ID] || removed[p.ID] {
					t.Fatalf("step %d: %s is handed out twice or was removed", step, p.ID)
				}
				inStep[p.ID] = true
				if times[p.ID] != handed/left {
					t.Fatalf("step %d, epoch %d: %s handed out for the %d. time", step, handed/left, p.ID, times[p.ID]+1)
				}
				times[p.ID]++
				handed++
			}
			if len(problems) != perStep {
				t.Fatalf("step %d has %d problems, want %d", step, len(problems), perStep)
			}
		}
	})
}

func TestLedgerShufflesEachEpoch(t *testing.T) {
	l, err := dataset.NewLedger(1, numbered(40), 40, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := dataset.NewLedger(2, numbered(40), 40, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cmp.Equal(l.Step(0), l.Step(1)) || cmp.Equal(l.Step(0), other.Step(0)) {
		t.Error("epochs or seeds share an order")
	}
}

func TestLedgerRefusesWhatCannotFillAStep(t *testing.T) {
	for name, make := range map[string]func() (*dataset.Ledger, error){
		"too few": func() (*dataset.Ledger, error) { return dataset.NewLedger(1, numbered(3), 4, nil) },
		"all removed": func() (*dataset.Ledger, error) {
			return dataset.NewLedger(1, numbered(1), 1, map[string]bool{"p0": true})
		},
		"zero": func() (*dataset.Ledger, error) { return dataset.NewLedger(1, numbered(3), 0, nil) },
		"twice": func() (*dataset.Ledger, error) {
			return dataset.NewLedger(1, append(numbered(3), numbered(1)...), 1, nil)
		},
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestReadNamesEveryBadLine(t *testing.T) {
	file := `{"id": "a", "env": "chase", "prompt": "k1?", "answer": "1"}
{"id": "b", "env": "chase", "prompt": "k1?

{"id": "c", "env": "chase", "prompt": "k1?", "answer": "1", "colour": "red"}
{"id": "a", "env": "chase", "prompt": "k2?", "answer": "2"}
{"id": "x/y", "env": "chase", "prompt": "k2?", "answer": "2"}
{"id": "d", "env": "chase", "prompt": "k2?", "answer": 2}
{"id": "e", "env": "chase", "prompt": "k2?", "answer": "2"} {}
{"id": "f", "env": "chase", "prompt": "", "answer": "2"}
`
	_, err := dataset.ReadProblems(strings.NewReader(file), "train.jsonl")
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	want := []string{"train.jsonl:2: ", "train.jsonl:4: ", "train.jsonl:5: ", "train.jsonl:6: ", "train.jsonl:7: ", "train.jsonl:8: ", "train.jsonl:9: "}
	if len(lines) != len(want) {
		t.Fatalf("got %d lines:\n%v", len(lines), err)
	}
	for i, names := range []string{"prompt", "colour", "line 1 already", "without '/'", "answer: want a text in quotes, have a number", "text after", "missing or empty: prompt"} {
		if !strings.HasPrefix(lines[i], want[i]) || !strings.Contains(lines[i], names) {
			t.Errorf("line %q, want %q naming %q", lines[i], want[i], names)
		}
	}
}

func TestReadBoundsItsError(t *testing.T) {
	_, err := dataset.ReadProblems(strings.NewReader(strings.Repeat("x\n", 1000)), "f")
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 21 || !strings.Contains(err.Error(), "980 more bad lines") {
		t.Errorf("%d lines: %v", lines, err)
	}
	if _, err := dataset.ReadDialogues(strings.NewReader("\n"), "f"); err == nil {
		t.Error("an empty file was accepted")
	}
}

// TestLineErrorsNameTheField and the fields there are.
func TestLineErrorsNameTheField(t *testing.T) {
	const good = `"id": "a", "env": "chase", "prompt": "k1?"`
	for line, want := range map[string]string{
		`{"id": "a", "anwser": "1"}`:                  `f:1: unknown field "anwser": want id, env, level, prompt, answer, fixture, source, license; did you mean answer?`,
		`{"Answer": "1"}`:                             `f:1: unknown field "Answer": want id, env, level, prompt, answer, fixture, source, license; did you mean answer?`,
		`{"id": "a", "question": "1"}`:                `f:1: unknown field "question": want id, env, level, prompt, answer, fixture, source, license`,
		`{"id": "a"}`:                                 "f:1: missing or empty: env, prompt, answer",
		`{` + good + `, "answer": null}`:              "f:1: missing or empty: answer",
		`{` + good + `, "answer": 7}`:                 "f:1: answer: want a text in quotes, have a number",
		`{` + good + `, "answer": ["7"]}`:             "f:1: answer: want a text in quotes, have a list",
		`{` + good + `, "level": "2"}`:                "f:1: level: want a whole number, have a text",
		`{` + good + `, "level": 1.5}`:                "f:1: level: want a whole number, have 1.5",
		`{"id": "a", "id": "b"}`:                      "f:1: id is given twice",
		`["a"]`:                                       "f:1: want a JSON object {...}, have a list",
		`[` + strings.Repeat("[", 50000):              "f:1: want a JSON object {...}, have a list",
		`{"prompt": ` + strings.Repeat("[", 50000):    "f:1: prompt[0][0][0][0][0][0][0]...: no JSON at byte 10011: exceeded max depth",
		`{"x": ` + strings.Repeat(`{"x":`, 50000):     `f:1: unknown field "x": want id, env, level, prompt, answer, fixture, source, license`,
		`{"id": "a", "prompt": "k1`:                   "f:1: prompt: the JSON object is cut short",
		`id,prompt,answer`:                            "f:1: no JSON at byte 1: invalid character 'i' at start of value",
		"{\"id\": \"a\xff\"}":                         "f:1: id: not UTF-8 at byte 10",
		`{"id": "\ud800"}`:                            "f:1: id: no JSON at byte 9: invalid surrogate pair `\\ud800\"}` in string",
		"{\"id\": \"a\x00\"}":                         "f:1: id: no JSON at byte 10: invalid character '\\x00' in string (expecting non-control character)",
		"{\"id\": \"a\x1b[31m\", \"env\": \"chase\"}": "f:1: id: no JSON at byte 10: invalid character '\\x1b' in string (expecting non-control character)",
		"\xff\xfe{\x00":                               "f: is UTF-16, want UTF-8",
		"\x1f\x8b\x08":                                "f: is compressed: unpack it first",
	} {
		_, err := dataset.ReadProblems(strings.NewReader(line), "f")
		if err == nil || err.Error() != want {
			t.Errorf("%.60q:\ngot  %v\nwant %s", line, err, want)
		}
	}
	dialogue := func(message string) string {
		return `{"messages": [{"role": "user", "content": "q"}, ` + message + `]}`
	}
	for line, want := range map[string]string{
		dialogue(`{"role": "assistant", "text": "x"}`): `f:1: messages[1]: unknown field "text": want role, content, tool_calls, tool_call_id`,
		dialogue(`{"content": "x"}`):                   "f:1: missing or empty: messages[1].role",
		dialogue(`{"role": "assistant", "tool_calls": [{"function": {"name": "python", "arguments": {"code": "1"}}}]}`):      "f:1: messages[1].tool_calls[0].function.arguments: want a text in quotes, have an object",
		dialogue(`{"role": "assistant", "tool_calls": [{"name": "c1", "function": {"name": "python", "arguments": "{}"}}]}`): `f:1: messages[1].tool_calls[0]: unknown field "name": want id, type, function`,
		`{"message": []}`: `f:1: unknown field "message": want id, source, license, tools, messages; did you mean messages?`,
		`{}`:              "f:1: missing or empty: messages",
	} {
		_, err := dataset.ReadDialogues(strings.NewReader(line), "f")
		if err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", line, err, want)
		}
	}
}

// TestOddButGoodFiles: a byte order mark, Windows line ends, blank lines, no line
// break at the end.
func TestOddButGoodFiles(t *testing.T) {
	line := func(id string) string {
		return `{"id": "` + id + `", "env": "chase", "prompt": "k1?", "answer": "1"}`
	}
	problems, err := dataset.ReadProblems(strings.NewReader("\ufeff"+line("a")+"\r\n\r\n \t\n"+line("b")), "f")
	if err != nil || len(problems) != 2 || problems[0].ID != "a" || problems[1].ID != "b" {
		t.Errorf("%v, %v", problems, err)
	}
	_, err = dataset.ReadProblems(strings.NewReader("\ufeff"+line("a")+"\r\n"+line("a")+"\r\n"), "f")
	if err == nil || err.Error() != `f:2: id "a" is on line 1 already` {
		t.Errorf("error %v", err)
	}
}

// TestHugeLinesAreSkipped: the lines after one are read, and none is kept.
func TestHugeLinesAreSkipped(t *testing.T) {
	big := `{"id": "big", "prompt": "` + strings.Repeat("x", 16<<20) + "\"}\n"
	_, err := dataset.ReadProblems(strings.NewReader(big+"{}\n"+big), "f")
	const want = "f:1: is longer than 16 MiB, the limit of one row\nf:2: missing or empty: id, env, prompt, answer\nf:3: is longer than 16 MiB, the limit of one row"
	if err == nil || err.Error() != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
	longest := `{"id": "a", "env": "chase", "answer": "1", "prompt": "`
	longest += strings.Repeat("x", 16<<20-len(longest)-3) + "\"}\n"
	if ps, err := dataset.ReadProblems(strings.NewReader(longest), "f"); err != nil || len(ps) != 1 {
		t.Errorf("a line of exactly 16 MiB: %v", err)
	}
}

// FuzzRead: each error line names the file, is printable and bounded, and what is
// accepted comes back from its own file as it was.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"id": "a", "env": "chase", "prompt": "k1?", "answer": "1"}`))
	f.Add([]byte("\ufeff{\"id\": \"a\"}\r\n[[[\n\x00\xff\n{\"messages\": [{\"role\": 1}]}"))
	f.Add([]byte(`{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		problems, err := dataset.ReadProblems(bytes.NewReader(data), "f")
		checkRead(t, problems, err)
		if err == nil {
			again, err := dataset.Problems(config.Source{Path: write(t, problems)}, 0, env.Train)
			if diff := cmp.Diff(problems, again); err != nil || diff != "" {
				t.Errorf("written and read again: %v\n%s", err, diff)
			}
		}
		dialogues, err := dataset.ReadDialogues(bytes.NewReader(data), "f")
		checkRead(t, dialogues, err)
	})
}

func checkRead[T any](t *testing.T, read []T, err error) {
	t.Helper()
	if err == nil {
		if len(read) == 0 {
			t.Error("nothing read, and no error")
		}
		return
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) > 21 {
		t.Errorf("%d lines of errors", len(lines))
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "f:") || len(line) > 1000 || strings.ContainsFunc(line, func(r rune) bool { return r != ' ' && !strconv.IsPrint(r) }) {
			t.Errorf("error line %q", line)
		}
	}
}

func TestDialoguesWithBadRolesAreNamed(t *testing.T) {
	file := `{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<tool_call>{broken</tool_call>"}]}
{"messages": [{"role": "user", "content": "q"}]}
`
	_, err := dataset.ReadDialogues(strings.NewReader(file), "sft.jsonl")
	if err == nil || !strings.HasPrefix(err.Error(), "sft.jsonl:2: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line for sft.jsonl:2", err)
	}
}

// TestFilesGiveBackWhatWasWritten, through the source that a run would name.
func TestFilesGiveBackWhatWasWritten(t *testing.T) {
	generated := config.Source{Env: "chase", Levels: []int{1, 2, 3}, Num: 20}
	problems, err := dataset.Problems(generated, 5, env.Train)
	if err != nil {
		t.Fatal(err)
	}
	dialogues, err := dataset.Dialogues(generated, 5)
	if err != nil {
		t.Fatal(err)
	}
	gotProblems, err := dataset.Problems(config.Source{Path: write(t, problems)}, 0, env.Train)
	if diff := cmp.Diff(gotProblems, problems); err != nil || diff != "" {
		t.Errorf("problems: %v\n%s", err, diff)
	}
	gotDialogues, err := dataset.Dialogues(config.Source{Path: write(t, dialogues)}, 0)
	if diff := cmp.Diff(gotDialogues, dialogues); err != nil || diff != "" {
		t.Errorf("dialogues: %v\n%s", err, diff)
	}
}

func write[T any](t *testing.T, values []T) string {
	t.Helper()
	var b bytes.Buffer
	if err := dataset.Write(&b, values); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "data.jsonl")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSourceSharesItsLevels(t *testing.T) {
	problems, err := dataset.Problems(config.Source{Env: "verbs", Levels: []int{1, 2, 3}, Num: 8}, 1, env.HeldOut)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[int]int{}
	for _, p := range problems {
		counts[p.Level]++
	}
	if diff := cmp.Diff(counts, map[int]int{1: 3, 2: 3, 3: 2}); diff != "" {
		t.Errorf("levels: got -, want +\n%s", diff)
	}
	for want, src := range map[string]config.Source{
		"maze":      {Env: "maze", Levels: []int{1}, Num: 1},
		"num is 0":  {Env: "chase", Levels: []int{1}},
		"levels 1":  {Env: "chase", Levels: []int{9}, Num: 1},
		"twice":     {Env: "chase", Levels: []int{1, 1}, Num: 2},
		"not-there": {Path: "not-there.jsonl"},
	} {
		if _, err := dataset.Problems(src, 1, env.Train); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one naming %q", err, want)
		}
	}
}

// TestKeysOfMathMustBeComparable, while those of other environments are texts.
func TestKeysOfMathMustBeComparable(t *testing.T) {
	line := func(id, e, answer string) string {
		return fmt.Sprintf("{\"id\":%q,\"env\":%q,\"prompt\":\"1?\",\"answer\":%q}\n", id, e, answer)
	}
	good := line("a", "math", "34") + line("b", "math", `\frac{1}{2}`) + line("c", "verbs", "$$") + line("d", "chess", "$$")
	if ps, err := dataset.ReadProblems(strings.NewReader(good), "f"); err != nil || len(ps) != 4 {
		t.Errorf("%d problems, %v", len(ps), err)
	}
	_, err := dataset.ReadProblems(strings.NewReader(good+line("e", "math", "$$")), "f")
	if err == nil || !strings.Contains(err.Error(), `f:5: answer "$$": truth is invalid: the truth is empty`) {
		t.Errorf("error %v", err)
	}
}

func TestDialogueValidateMatchesRender(t *testing.T) {
	d := chat.Dialogue{Messages: []chat.Message{{Role: "user"}, {Role: "tool"}}}
	if d.Validate() == nil {
		t.Error("a tool message after the user's was accepted")
	}
}
