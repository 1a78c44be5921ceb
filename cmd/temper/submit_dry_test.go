package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/chat"
	"temper/internal/cli"
	"temper/internal/run/runtest"
	"temper/trainer/weights/hf"
)

// recipeModel is a small model with the positions that the evaluations take, and with a
// tokenizer that makes prompts of the recipes' template as short as a real one does.
func recipeModel(t *testing.T) string {
	t.Helper()
	tmpl, err := chat.Builtin(chat.FormatRStar2)
	if err != nil {
		t.Fatal(err)
	}
	said := []chat.Message{{Role: chat.RoleUser, Content: "What is it?"}, {Role: chat.RoleAssistant, Content: "<reason>So.</reason>\n<answer>\\boxed{1}</answer>"}}
	tok, err := chat.TrainTokenizer(chat.Config{Template: tmpl}, []chat.Dialogue{{Messages: said}}, 400)
	if err != nil {
		t.Fatal(err)
	}
	text, err := tok.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	model := runtest.StartModel()
	model.VocabSize, model.MaxPositionEmbeddings = tok.VocabSize(), 32<<10
	return runtest.WriteModel(t, model, func(files map[string][]byte) { files[hf.TokenizerFile] = text })
}

// recipeFolder has the shipped recipes beside folders of made models and data, as they name
// them.
func recipeFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Rename(recipeModel(t), filepath.Join(dir, "model")); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"configs", "data", "models"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"Qwen3-14B-Base", "Qwen3-1.7B-Base", "Qwen3-0.6B-Base"} {
		if err := os.Symlink(filepath.Join(dir, "model"), filepath.Join(dir, "models", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"rstar2-14b.yaml", "rstar2-1.7b.yaml", "rstar2-0.6b.yaml"} {
		data, err := os.ReadFile(filepath.Join("../../configs", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "configs", name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(name string, n int, row func(i int) string) {
		var b strings.Builder
		for i := range n {
			b.WriteString(row(i) + "\n")
		}
		if err := os.WriteFile(filepath.Join(dir, "data", name), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("sft.jsonl", 260, func(i int) string {
		return fmt.Sprintf(`{"tools": [{"name": "city", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}], "messages": [`+
			`{"role": "user", "content": "Which city is number %d?"}, {"role": "assistant", "tool_calls": [{"function": {"name": "city", "arguments": "{\"n\": %d}"}}]}, `+
			`{"role": "tool", "content": "city %d"}, {"role": "assistant", "content": "<reason>The tool says so.</reason>\n<answer>\\boxed{%d}</answer>"}]}`, i, i, i, i)
	})
	problems := func(name string, n int) {
		put(name, n, func(i int) string {
			return fmt.Sprintf(`{"id": "%s-%d", "env": "math", "prompt": "Of %s: what is %d + %d?", "answer": "%d"}`, name, i, name, i, i+1, 2*i+1)
		})
	}
	problems("rl-42k.jsonl", 640)
	problems("gsm8k.jsonl", 200)
	for _, set := range []string{"aime24", "aime25", "hmmt25", "math500", "gpqa-diamond", "gsm8k-test"} {
		problems(set+".jsonl", 30)
	}
	return dir
}

// TestDryRunOfTheRecipe passes for each recipe over fixtures, prints the numbers of the
// paper for that of 14B, and leaves nothing behind.
func TestDryRunOfTheRecipe(t *testing.T) {
	dir := recipeFolder(t)
	home := filepath.Join(dir, "home")
	t.Setenv("TEMPER_HOME", home)
	for name, wants := range map[string][]string{
		"rstar2-14b.yaml": {
			// Section 4.1: three epochs of batches of 128, lr 5e-6, a warm-up of 4 %, cosine.
			"7 updates of 128 dialogues, out of 260 from ", "; 3 epochs; lr 5e-06, warm-up of 208, cosine", "gate: copied from 0.9, reward 0.15 to 0.6",
			// Sections 4.3 and 5.1.
			"512 problems x 32 rollouts, 16 kept of each; lr 1e-06; RoC of the paper",
			"300 steps, 10 turns, 8192 response tokens", "may end by a plateau over 20 steps",
			"85 steps, 10 turns, 12288 response tokens",
			"125 steps, 15 turns, 12288 response tokens", "filter by 8 rollouts of each problem: pass rates below 1; fresh optimizer",
			"set aime24", "set aime25", "set hmmt25", "set math500", "set gpqa-diamond", "16 samples at 0.6, 30 turns, 30720 response tokens",
			"510 steps over 1740 problems; 330 held out", // in three stages, each of 580 and 60; 150 in the sets,
		},
		"rstar2-1.7b.yaml": {"bands from 0 to 0.97", "pass rates from 0.125 to below 1"},
		"rstar2-0.6b.yaml": {"up to 2 rounds of refill", "pass rates from 0.25 to below 1"},
	} {
		var out, errs strings.Builder
		file := filepath.Join(dir, "configs", name)
		if code := execute([]string{"run", "submit", "--dry-run", file}, &out, &errs); code != 0 {
			t.Errorf("%s: exit code %d: %s", name, code, errs.String())
		}
		for _, want := range append(wants, file+" is good\n") {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s\n%slacks %q", name, out.String(), want)
			}
		}
	}
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("a home was made: %v", err)
	}
}

// TestDryRunRefuses what a run would refuse, before it starts.
func TestDryRunRefuses(t *testing.T) {
	dir := recipeFolder(t)
	t.Setenv("TEMPER_HOME", filepath.Join(dir, "home"))
	trained := filepath.Join(dir, "data", "trained.jsonl")
	// The prompt of a training problem, but for capitals, spaces and dollar signs.
	if err := os.WriteFile(trained, []byte(`{"id": "a", "env": "math", "prompt": "of  rl-42k.jsonl: WHAT is $500 + 501$?", "answer": "1001"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "configs", "rstar2-14b.yaml")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"an evaluation set in the training data": {[]string{file, "--set", "eval.sets[3].path=" + trained}, "problem a of eval.sets[3] (math500): nobody may train on what is evaluated"},
		"a set that is not there":                {[]string{file, "--set", "eval.sets[1].path=" + dir + "/none.jsonl"}, "eval.sets[1].path: "},
		"dialogues that are not there":           {[]string{file, "--set", "sft.data.path=" + dir + "/none.jsonl"}, "sft.data"},
		"two files":                              {[]string{file, file}, "accepts 1 arg"},
		"no file":                                {nil, "accepts 1 arg"},
		"a policy of nobody":                     {[]string{file, "--from", "nobody"}, `--from: run "nobody" has published no policy`},
	} {
		var out, errs strings.Builder
		code := execute(append([]string{"run", "submit", "--dry-run"}, c.args...), &out, &errs)
		if code != cli.ExitUser || out.Len() > 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: exit code %d, stdout %q, want %q in\n%s", name, code, out.String(), c.want, errs.String())
		}
	}
}
