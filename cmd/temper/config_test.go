package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/cli"
	"temper/internal/config"
)

const ciFile = "../../configs/ci.yaml"

// TestConfigCheckDescribesTheRun and leaves nothing behind.
func TestConfigCheckDescribesTheRun(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	t.Setenv("TEMPER_HOME", home)
	var out, errs strings.Builder
	if code := execute([]string{"config", "check", ciFile, "--set", "sft.data.num=64", "--set", "stages[1].until.steps=9"}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	for _, want := range []string{
		ciFile + " is good\n", "ci, seed 1", "random weights, 2 layers of width 64; vocabulary of ", "160 updates of 24 dialogues, out of 64 from chase",
		"128 tokens; the longest sequence can take ", "4 problems x 8 rollouts, 4 kept of each; lr 0.0004", "9 steps, 4 turns, 72 response tokens", "14 steps over 88 problems; 36 held out",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("stdout\n%slacks %q", out.String(), want)
		}
	}
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("a home was made: %v", err)
	}
}

// TestConfigCheckFindsEveryMistake that would stop a run, all at once.
func TestConfigCheckFindsEveryMistake(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	problem := func(id, env, prompt string) string {
		return `{"id": "` + id + `", "env": "` + env + `", "prompt": "` + prompt + `", "answer": "1"}` + "\n"
	}
	long := strings.Repeat("x", 500)
	write("one.jsonl", problem("a", "chase", "k1?"))
	write("few.jsonl", problem("a", "chase", "k11?")+problem("b", "chase", "k12?")+problem("c", "chase", "k13?"))
	write("maze.jsonl", strings.Repeat("\n", 3)+problem("a", "maze", "k21?")+problem("b", "maze", "k22?")+problem("c", "chase", "k23?")+problem("d", "chase", "k24?")+problem("e", "chase", "k25?"))
	write("long.jsonl", problem("a", "chase", long)+problem("b", "chase", "k31?")+problem("c", "chase", "k32?")+problem("d", "chase", "k33?"))
	write("bad.jsonl", problem("a", "chase", "k1?")+`{"id": "b", "anwser": "1"}`+"\n")
	write("sft.jsonl", `{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "`+long+`"}]}`+"\n")
	const stages = "stages:\n- {name: a, data: {path: one.jsonl}}\n- {name: b, data: {path: few.jsonl}}\n- {name: c, data: {path: maze.jsonl}}\n" +
		"- {name: d, data: {path: long.jsonl}}\n- {name: e, data: {path: bad.jsonl}}\n- {name: f, data: {path: none.jsonl}}\n"
	small := "tokenizer: {num_merges: 0}\nrl: {problems_per_step: 2}\neval: {num_problems: 2}\n"
	for name, c := range map[string]struct {
		text string
		set  []string
		want []string
	}{
		"data": {small + "sft: {data: {path: sft.jsonl}, batch_size: 1}\n" + stages, nil, []string{
			"sft.data: 1 of 1 rows are to be dropped, too long, above data.max_dropped (0.1); the first: dialogue 1 has ", "above model.max_context (256)",
			"stages[0].data: " + filepath.Join(dir, "one.jsonl") + ": 1 problem, want at least 2",
			`stages[2].data: problem "a": unknown environment "maze"`, `stages[2].data: problem "b": unknown`,
			"model.max_context: is 256, but the prompt of problem a with max_response_tokens needs ", "; of stages[3].data, 1 of 2 need more, above data.max_dropped (0.1)",
			"bad.jsonl:2: unknown field \"anwser\": want id, env", "none.jsonl: no such file",
		}},
		"too few": {"rl: {problems_per_step: 3}\n" + stages, nil, []string{"stages[1].data: 2 training problems, want at least rl.problems_per_step (3)"}},
		"keys and data": {"rl: {grop_size: 2}\n" + stages, []string{"--set", "rl.roc.mode=best"}, []string{
			"rl.grop_size: unknown key; did you mean group_size?", `rl.roc.mode: is "best", want one of paper, released`, "stages[4].data.path: " + filepath.Join(dir, "bad.jsonl") + ":2: unknown field",
		}},
		"a start that is none":    {"model: {path: weights}\nstages: [{name: a}]\n", nil, []string{"model.path: " + filepath.Join(dir, "weights") + ": no such file"}},
		"a template that is none": {"rollout: {chat_template: t.jinja}\nstages: [{name: a}]\n", nil, []string{"rollout.chat_template: ", "t.jinja: no such file"}},
		"a policy of nobody":      {"model: {run: demo@3}\nstages: [{name: a}]\n", nil, []string{"model.run: is demo@3, but "}},
		"a blob of nobody":        {"stages: [{name: a, data: {path: 'store:problems.jsonl'}}]\n", nil, []string{"stages[0].data: ", "problems.jsonl: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TEMPER_HOME", filepath.Join(t.TempDir(), "home"))
			var out, errs strings.Builder
			args := append([]string{"config", "check", write("run.yaml", c.text), "--set", "sft.data.num=32"}, c.set...)
			if code := execute(args, &out, &errs); code != cli.ExitUser || out.Len() > 0 {
				t.Errorf("exit code %d, stdout %q", code, out.String())
			}
			for _, want := range c.want {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("stderr\n%slacks %q", errs.String(), want)
				}
			}
		})
	}
}

// TestConfigShowAndSchema: show prints what loads to the same run, schema is JSON.
func TestConfigShowAndSchema(t *testing.T) {
	var out, errs strings.Builder
	if code := execute([]string{"config", "show", ciFile, "--set", "seed=9"}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	shown, err := config.Load("shown", []byte(out.String()), nil)
	if err != nil || shown.Seed != 9 || shown.Watch != config.Default().Watch {
		t.Errorf("seed %d, watch %+v (%v)", shown.Seed, shown.Watch, err)
	}
	out.Reset()
	if code := execute([]string{"config", "schema"}, &out, &errs); code != 0 || !json.Valid([]byte(out.String())) || !strings.Contains(out.String(), "draft/2020-12/schema") {
		t.Errorf("exit code %d, schema %.100q", code, out.String())
	}
}
