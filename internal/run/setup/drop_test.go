package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"temper/internal/chat"
	"temper/internal/fault"
	"temper/internal/run/runtest"
	"temper/internal/run/setup"
)

// problems are n lines of problems whose prompts are numbered from first.
func problems(id string, first, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id": "%s%d", "env": "chase", "prompt": "k%d?", "answer": "1"}`+"\n", id, i, first+i)
	}
	return b.String()
}

// TestDroppedRowsAreCounted: problems that ask the same, those that another stage holds
// out, and prompts that are too long are dropped, counted and named.
func TestDroppedRowsAreCounted(t *testing.T) {
	long := `{"id": "long", "env": "chase", "prompt": "` + strings.Repeat("why ", 500) + `", "answer": "1"}` + "\n"
	twice := `{"id": "twice", "env": "chase", "prompt": "  K3? ", "answer": "1"}` + "\n"
	first := twice + long + problems("a", 0, 40) // holds out k36 to k39
	second := problems("b", 30, 30)              // has k36 to k39 too
	h := runtest.New(t, map[string]string{
		"stages[0].data.path": write(t, first), "stages[1].data.path": write(t, second), "data.max_dropped": "0.2",
	})
	ready, err := setup.Prepare(t.Context(), h.Store, h.Ref, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range ready.Dropped {
		got = append(got, fmt.Sprintf("%s %s %d of %d", d.Set, d.Reason, d.Rows, d.Of))
	}
	want := []string{
		"stages[0].data the prompt of another problem 1 of 42",
		"stages[0].data too long 1 of 37",
		"stages[1].data held out for evaluation 4 of 26",
	}
	if !slices.Equal(got, want) {
		t.Errorf("dropped\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	held := map[string]bool{}
	for stage := 1; stage <= 2; stage++ {
		for _, p := range h.Problems(t, h.Layout.Stage(stage).HeldOut()) {
			held[p.Prompt] = true
		}
	}
	for stage := 1; stage <= 2; stage++ {
		for _, p := range h.Problems(t, h.Layout.Stage(stage).Train()) {
			if held[p.Prompt] {
				t.Errorf("stage %d trains on %q, which is held out", stage, p.Prompt)
			}
		}
	}
}

// TestTooManyDroppedRowsAreRefused names the share, its key and the first row.
func TestTooManyDroppedRowsAreRefused(t *testing.T) {
	same := problems("a", 0, 20) + problems("b", 0, 20)
	err := prepareError(t, map[string]string{"stages[0].data.path": write(t, same)})
	runtest.WantFault(t, err, fault.Dataset, "stages[0].data: 20 of 40 rows are to be dropped, the prompt of another problem", "data.max_dropped (0.1)", `problem "b0" is "a0"`)
	err = prepareError(t, map[string]string{"stages[0].data.path": write(t, problems("a", 0, 20)), "stages[1].data.path": write(t, problems("b", 10, 20))})
	runtest.WantFault(t, err, fault.Dataset, "held out")
}

// TestDialoguesOfFiles: a template that opens turns with <reason> gets that put in,
// dialogues bring tools of their own, and one that does not fit is dropped and counted.
func TestDialoguesOfFiles(t *testing.T) {
	var lines strings.Builder
	for i := range 19 {
		fmt.Fprintf(&lines, `{"source": "own", "license": "mit", "tools": [{"name": "tide", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}], "messages": [`+
			`{"role": "user", "content": "%d?"}, {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "tide", "arguments": "{\"at\": \"x\"}"}}]}, `+
			`{"role": "tool", "content": "high"}, {"role": "assistant", "content": "High."}]}`+"\n", i)
	}
	lines.WriteString(`{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [{"function": {"name": "nobody", "arguments": "{}"}}]}]}` + "\n")
	h := runtest.New(t, map[string]string{
		"sft.data.path": write(t, lines.String()), "rollout.chat_template": "rstar2", "model.max_context": "4096",
	})
	ready, err := setup.Prepare(t.Context(), h.Store, h.Ref, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if ready.Dialogues != 19 || len(ready.Dropped) != 1 || !strings.Contains(ready.Dropped[0].String(), "sft.data: 1 of 20 dropped, does not fit the chat format; the first: dialogue 20") {
		t.Errorf("%d dialogues, dropped %v", ready.Dialogues, ready.Dropped)
	}
	for _, d := range runtest.ReadLines[chat.Dialogue](t, h.Store, h.Layout.SFT().Dialogues()) {
		if len(d.Tools) != 1 || !strings.HasPrefix(d.Messages[1].Content, "<reason>") || !strings.HasSuffix(d.Messages[3].Content, "High.") {
			t.Fatalf("the dialogue is %+v", d)
		}
	}
}

// TestMixedDialogues come from several files by their weights.
func TestMixedDialogues(t *testing.T) {
	file := func(name string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `{"messages": [{"role": "user", "content": "%s%d?"}, {"role": "assistant", "content": "%s"}]}`+"\n", name, i, name)
		}
		return write(t, b.String())
	}
	h := runtest.New(t, map[string]string{
		"data.mix":    fmt.Sprintf("[{path: %s, share: 3}, {path: %s, share: 1}]", file("a", 6), file("b", 20)),
		"data.mix_by": "weights", "data.mix_num": "16",
	})
	count := map[string]int{}
	for _, d := range runtest.ReadLines[chat.Dialogue](t, h.Store, h.Layout.SFT().Dialogues()) {
		count[d.Messages[1].Content]++
	}
	if count["a"] != 12 || count["b"] != 4 {
		t.Errorf("the mix has %v, want 12 of a and 4 of b", count)
	}
}
