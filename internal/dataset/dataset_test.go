package dataset_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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
{"id": "b", "env": "chase", "prompt": "k1?"

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
	for i, names := range []string{"cut short", "colour", "line 1 already", "without '/'", "answer", "text after", "prompt is missing"} {
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
	if err == nil || !strings.Contains(err.Error(), `f:5: answer "$$": judge job is invalid: the truth is empty`) {
		t.Errorf("error %v", err)
	}
}

func TestDialogueValidateMatchesRender(t *testing.T) {
	d := chat.Dialogue{Messages: []chat.Message{{Role: "user"}, {Role: "tool"}}}
	if d.Validate() == nil {
		t.Error("a tool message after the user's was accepted")
	}
}
