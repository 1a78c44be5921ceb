package setup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/run/setup"
)

// TestEpochsCountWhatIsLearned: the updates of sft.epochs are those of the file, or of the
// mix, and a check reads the dialogues of both.
func TestEpochsCountWhatIsLearned(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, n int) string {
		path := filepath.Join(dir, name)
		row := `{"messages": [{"role": "user", "content": "k%d?"}, {"role": "assistant", "content": "<answer>%d</answer>"}]}` + "\n"
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, row, i, i)
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ten, thirty := put("ten.jsonl", 10), put("thirty.jsonl", 30)
	const rest = "model: {max_context: 512}\ntokenizer: {num_merges: 0}\nrl: {problems_per_step: 2}\neval: {num_problems: 2}\nstages: [{name: a, data: {env: chase, levels: [1], num: 8}}]\n"
	for name, c := range map[string]struct {
		text             string
		steps, dialogues int
		bad              string
	}{
		"a file":         {"sft: {data: {path: " + thirty + "}, batch_size: 8, epochs: 2}\n", 8, 30, ""},
		"a generator":    {"sft: {data: {env: chase, levels: [1], num: 64}, batch_size: 8, epochs: 0.5}\n", 4, 64, ""},
		"a mix":          {"sft: {batch_size: 8, epochs: 2}\ndata: {mix: [{path: " + ten + "}, {path: " + thirty + ", share: 0.5}]}\n", 7, 25, ""},
		"weights":        {"sft: {batch_size: 8, epochs: 2}\ndata: {mix_by: weights, mix_num: 100, mix: [{path: " + ten + "}, {path: " + thirty + ", share: 3}]}\n", 25, 100, ""},
		"a missing file": {"sft: {batch_size: 8, epochs: 2}\ndata: {mix: [{path: " + ten + "}, {path: " + dir + "/none.jsonl}]}\n", 0, 0, "data.mix[1]: "},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := config.Load("run.yaml", []byte(c.text+rest), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := setup.Check(t.Context(), memblob.New(), cfg)
			if c.bad != "" {
				if err == nil || !strings.Contains(err.Error(), c.bad) {
					t.Errorf("%v, want %q", err, c.bad)
				}
				return
			}
			if err != nil || got.SFTSteps != c.steps || got.Dialogues != c.dialogues {
				t.Errorf("%d updates of %d dialogues, %v; want %d of %d", got.SFTSteps, got.Dialogues, err, c.steps, c.dialogues)
			}
		})
	}
}
