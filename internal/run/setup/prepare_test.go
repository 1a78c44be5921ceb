package setup_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
	"temper/internal/env"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/run/setup"
)

func TestPreparedDataIsWhole(t *testing.T) {
	h := runtest.New(t, nil)
	again, err := setup.Prepare(t.Context(), h.Store, h.Ref, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if again.Dialogues != 10 || again.Problems != 13 || again.NumHeldOut != 8 {
		t.Errorf("counts %+v", again)
	}
	data, err := blob.ReadKey(t.Context(), h.Store, h.Layout.Tokenizer())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil || tok.VocabSize() != again.VocabSize {
		t.Errorf("tokenizer of %d tokens (%v), want %d", tok.VocabSize(), err, again.VocabSize)
	}
	if n := len(runtest.ReadLines[chat.Dialogue](t, h.Store, h.Layout.SFT().Dialogues())); n != 10 {
		t.Errorf("%d dialogues", n)
	}
	for stage, name := range map[int]string{1: "chase", 2: "verbs"} {
		e, err := env.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		train, heldOut := h.Problems(t, h.Layout.Stage(stage).Train()), h.Problems(t, h.Layout.Stage(stage).HeldOut())
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
	t.Run("recipe", func(t *testing.T) { preparationRepeats(t, runtest.New(t, nil)) })
	t.Run("from a checkpoint", func(t *testing.T) {
		h := runtest.PrepareConfig(t, memblob.New(), "demo", runtest.CheckpointRecipe, map[string]string{"model.path": runtest.WriteModel(t, runtest.StartModel(), nil)})
		if len(runtest.Dump(t, h.Store)[h.Layout.Dir()+"/start/model.safetensors"]) == 0 {
			t.Fatal("the checkpoint is not in the run's store")
		}
		preparationRepeats(t, h)
	})
}

func preparationRepeats(t *testing.T, h *runtest.Run) {
	t.Helper()
	want := runtest.Dump(t, h.Store)
	delete(want, h.Layout.Data().Ready())
	for at := 1; ; at++ {
		f := runtest.Fate{At: at}
		store := runtest.Fill(t, map[string]string{h.Layout.Config().Opened(): want[h.Layout.Config().Opened()], h.Layout.Plan(): want[h.Layout.Plan()]})
		mortal := runtest.Mortal{Store: store, Fate: &f}
		_, err := setup.Prepare(t.Context(), mortal, h.Ref, func(string) {})
		if !f.Dead {
			if at < 12 {
				t.Fatalf("only %d moments", at)
			}
			return
		}
		if err == nil {
			t.Fatalf("death %s: no error", f.Names[at-1])
		}
		f.Dead = false
		if _, err := setup.Prepare(t.Context(), mortal, h.Ref, func(string) {}); err != nil {
			t.Fatal(err)
		}
		got := runtest.Dump(t, store)
		delete(got, h.Layout.Data().Ready()) // holds the time that it took
		if diff := cmp.Diff(got, want); diff != "" {
			t.Fatalf("death %s: got -, want +\n%s", f.Names[at-1], diff)
		}
	}
}

func TestFileIsSplitInTwo(t *testing.T) {
	var lines strings.Builder
	for i := range 6 {
		fmt.Fprintf(&lines, `{"id": "p%d", "env": "chase", "prompt": "k%d?", "answer": "%d"}`+"\n", i, i, i)
	}
	h := runtest.New(t, map[string]string{"stages[0].data.path": write(t, lines.String())})
	ids := func(key string) (out []string) {
		for _, p := range h.Problems(t, key) {
			out = append(out, p.ID)
		}
		return out
	}
	got := [][]string{ids(h.Layout.Stage(1).Train()), ids(h.Layout.Stage(1).HeldOut())}
	if diff := cmp.Diff(got, [][]string{{"p0", "p1", "p2"}, {"p3", "p4", "p5"}}); diff != "" {
		t.Errorf("half of a small file is held out: got -, want +\n%s", diff)
	}
}

func TestBadDataIsNamed(t *testing.T) {
	good := `{"id": "a", "env": "chase", "prompt": "k1?", "answer": "1"}` + "\n"
	tests := map[string]struct {
		key, content string
		kind         fault.Kind
		names        []string
	}{
		"corrupt lines": {"stages[0].data.path", good + "{\n" + good, fault.Dataset,
			[]string{"stages[0].data: ", "data.jsonl:2: ", "data.jsonl:3: "}},
		"unknown environment": {"stages[0].data.path", strings.Repeat(good, 1) + strings.NewReplacer(`"a"`, `"b"`, "chase", "maze", "k1?", "k2?").Replace(good) + runtest.ProblemLines(6),
			fault.Dataset, []string{`problem "b"`, "maze"}},
		"id that is no file name": {"stages[0].data.path", strings.Replace(good, `"a"`, `"a\\b"`, 1) + runtest.ProblemLines(6),
			fault.Dataset, []string{`a\\b`, "backslash"}},
		"id that is too long": {"stages[0].data.path", strings.Replace(good, `"a"`, `"`+strings.Repeat("a", 300)+`"`, 1) + runtest.ProblemLines(6),
			fault.Dataset, []string{"300 bytes"}},
		"too few problems":    {"stages[0].data.path", runtest.ProblemLines(4), fault.Dataset, []string{"2 training problems", "problems_per_step (3)"}},
		"nothing to hold out": {"stages[0].data.path", good, fault.Dataset, []string{"at least 2"}},
		"prompt that leaves no room": {"stages[0].data.path", strings.Replace(good, "k1?", strings.Repeat("why ", 500), 1) + runtest.ProblemLines(6),
			fault.InvalidConfig, []string{"model.max_context", "problem a"}},
		"corrupt dialogue": {"sft.data.path", `{"messages": [{"role": "user", "content": "q"}]}`, fault.Dataset,
			[]string{"sft.data: ", "data.jsonl:1: "}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			err := prepareError(t, map[string]string{c.key: write(t, c.content)})
			runtest.WantFault(t, err, c.kind, c.names...)
		})
	}
	runtest.WantFault(t, prepareError(t, map[string]string{"sft.data.path": "not-there.jsonl"}), fault.Dataset, "not-there.jsonl")
}

func write(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.jsonl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// prepareError opens a run and returns the error of preparing it.
func prepareError(t testing.TB, set map[string]string) error {
	t.Helper()
	store := runtest.Fill(t, nil)
	plan, err := runtest.Open(t, store, run.Input{RunID: "bad", Config: runtest.Text(t, runtest.Recipe), Set: set})
	if err != nil {
		t.Fatal(err)
	}
	_, err = setup.Prepare(context.Background(), store, run.Ref{RunID: plan.RunID, Config: plan.Config}, func(string) {})
	return err
}
