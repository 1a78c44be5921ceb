package activities_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/tokenizer"
)

func TestPreparedDataIsWhole(t *testing.T) {
	h := newHouse(t, nil)
	again, err := h.control.PrepareData(t.Context(), activities.PrepareDataInput{Run: h.run})
	if err != nil {
		t.Fatal(err)
	}
	if again.Dialogues != 10 || again.Problems != 13 || again.NumHeldOut != 8 {
		t.Errorf("counts %+v", again)
	}
	data, err := blob.ReadKey(t.Context(), h.store, h.layout.Tokenizer())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil || tok.VocabSize() != again.VocabSize {
		t.Errorf("tokenizer of %d tokens (%v), want %d", tok.VocabSize(), err, again.VocabSize)
	}
	if n := len(readLines[chat.Dialogue](t, h.store, h.layout.Dialogues())); n != 10 {
		t.Errorf("%d dialogues", n)
	}
	for stage, name := range map[int]string{1: "chase", 2: "verbs"} {
		e, err := env.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		train, heldOut := h.problems(t, h.layout.TrainProblems(stage)), h.problems(t, h.layout.HeldOutProblems(stage))
		if len(train) != map[int]int{1: 7, 2: 6}[stage] || len(heldOut) != 4 {
			t.Errorf("stage %d: %d and %d problems", stage, len(train), len(heldOut))
		}
		seen := map[string]bool{}
		for _, p := range append(train, heldOut...) {
			if p.Env != name || seen[p.ID] || !e.Verify(p, p.Answer) {
				t.Errorf("stage %d: problem %+v", stage, p)
			}
			seen[p.ID] = true
		}
	}
}

// TestPreparationRepeats: a preparation that died leaves nothing that counts,
// and the next one gives the same bytes.
func TestPreparationRepeats(t *testing.T) {
	t.Run("recipe", func(t *testing.T) { preparationRepeats(t, newHouse(t, nil)) })
	t.Run("from a checkpoint", func(t *testing.T) {
		h := prepareConfig(t, memblob.New(), "demo", fromCheckpoint, map[string]string{"model.path": writeModel(t, startModel(), nil)})
		if len(dump(t, h.store)[h.layout.Dir()+"/start/model.safetensors"]) == 0 {
			t.Fatal("the checkpoint is not in the run's store")
		}
		preparationRepeats(t, h)
	})
}

func preparationRepeats(t *testing.T, h *house) {
	t.Helper()
	want := dump(t, h.store)
	delete(want, h.layout.DataReady())
	for at := 1; ; at++ {
		f := fate{at: at}
		store := fill(t, map[string]string{h.layout.Config(): want[h.layout.Config()], h.layout.Plan(): want[h.layout.Plan()]})
		c := activities.Control{Store: mortal{store, &f}}
		_, err := c.PrepareData(t.Context(), activities.PrepareDataInput{Run: h.run})
		if !f.dead {
			if at < 12 {
				t.Fatalf("only %d moments", at)
			}
			return
		}
		if err == nil {
			t.Fatalf("death %s: no error", f.names[at-1])
		}
		f.dead = false
		if _, err := c.PrepareData(t.Context(), activities.PrepareDataInput{Run: h.run}); err != nil {
			t.Fatal(err)
		}
		got := dump(t, store)
		delete(got, h.layout.DataReady()) // holds the time that it took
		if diff := cmp.Diff(got, want); diff != "" {
			t.Fatalf("death %s: got -, want +\n%s", f.names[at-1], diff)
		}
	}
}

func TestFileIsSplitInTwo(t *testing.T) {
	var lines strings.Builder
	for i := range 6 {
		fmt.Fprintf(&lines, `{"id": "p%d", "env": "chase", "prompt": "k%d?", "answer": "%d"}`+"\n", i, i, i)
	}
	h := newHouse(t, map[string]string{"stages[0].data.path": write(t, lines.String())})
	ids := func(key string) (out []string) {
		for _, p := range h.problems(t, key) {
			out = append(out, p.ID)
		}
		return out
	}
	got := [][]string{ids(h.layout.TrainProblems(1)), ids(h.layout.HeldOutProblems(1))}
	if diff := cmp.Diff(got, [][]string{{"p0", "p1", "p2"}, {"p3", "p4", "p5"}}); diff != "" {
		t.Errorf("half of a small file is held out: got -, want +\n%s", diff)
	}
}

func TestBadDataIsNamed(t *testing.T) {
	good := `{"id": "a", "env": "chase", "prompt": "k1?", "answer": "1"}` + "\n"
	tests := map[string]struct {
		key, content string
		kind         string
		names        []string
	}{
		"corrupt lines": {"stages[0].data.path", good + "{\n" + good, string(fault.Dataset),
			[]string{"stages[0].data: ", "data.jsonl:2: ", "data.jsonl:3: "}},
		"unknown environment": {"stages[0].data.path", strings.Repeat(good, 1) + strings.NewReplacer(`"a"`, `"b"`, "chase", "maze").Replace(good) + more(6),
			string(fault.Dataset), []string{`problem "b"`, "maze"}},
		"id that is no file name": {"stages[0].data.path", strings.Replace(good, `"a"`, `"a\\b"`, 1) + more(6),
			string(fault.Dataset), []string{`a\\b`, "backslash"}},
		"id that is too long": {"stages[0].data.path", strings.Replace(good, `"a"`, `"`+strings.Repeat("a", 300)+`"`, 1) + more(6),
			string(fault.Dataset), []string{"300 bytes"}},
		"too few problems":    {"stages[0].data.path", more(4), string(fault.Dataset), []string{"2 training problems", "problems_per_step (3)"}},
		"nothing to hold out": {"stages[0].data.path", good, string(fault.Dataset), []string{"at least 2"}},
		"prompt that leaves no room": {"stages[0].data.path", strings.Replace(good, "k1?", strings.Repeat("why ", 500), 1) + more(6),
			string(fault.InvalidConfig), []string{"model.max_context", "problem a"}},
		"corrupt dialogue": {"sft.data.path", `{"messages": [{"role": "user", "content": "q"}]}`, string(fault.Dataset),
			[]string{"sft.data: ", "data.jsonl:1: "}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			err := prepareError(t, map[string]string{c.key: write(t, c.content)})
			for _, text := range c.names {
				wantKind(t, err, c.kind, text)
			}
		})
	}
	wantKind(t, prepareError(t, map[string]string{"sft.data.path": "not-there.jsonl"}), string(fault.Dataset), "not-there.jsonl")
}

// more is n good lines.
func more(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id": "m%d", "env": "chase", "prompt": "k1?", "answer": "1"}`+"\n", i)
	}
	return b.String()
}

func write(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.jsonl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// prepareError opens a run and returns what PrepareData says about it.
func prepareError(t testing.TB, set map[string]string) error {
	t.Helper()
	c := &activities.Control{Store: fill(t, nil)}
	plan, err := openRun(t, c, run.Input{RunID: "bad", Config: asString(t, testConfig), Set: set})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.PrepareData(context.Background(), activities.PrepareDataInput{
		Run: run.Ref{RunID: plan.RunID, Config: plan.Config},
	})
	return err
}
