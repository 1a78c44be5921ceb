package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
)

func TestEveryConfigInTheRepositoryLoads(t *testing.T) {
	files, err := filepath.Glob("../../configs/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no configs found: %v", err)
	}
	for _, f := range files {
		if _, err := config.LoadFile(f, nil); err != nil {
			t.Errorf("%v", err)
		}
	}
}

func TestFrozenFormLoadsToTheSameRun(t *testing.T) {
	run, err := config.LoadFile("../../configs/demo.yaml", map[string]string{"seed": "7", "stages[1].until.steps": "3"})
	if err != nil {
		t.Fatal(err)
	}
	data, err := run.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := config.Load("frozen", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(run, again); d != "" {
		t.Errorf("frozen form differs (-run +again):\n%s", d)
	}
	if run.Seed != 7 || run.Stages[1].Until.Steps != 3 {
		t.Errorf("overrides not applied: seed %d, steps %d", run.Seed, run.Stages[1].Until.Steps)
	}
}

func TestBadInputNamesEveryKeyAndLineAtOnce(t *testing.T) {
	tests := []struct {
		name, yaml string
		set        map[string]string
		want       []string
	}{
		{"unknown and ill-typed", "name: x\nsedd: 3\nrl:\n  group_size: many\n  roc: {enabled: 1}\nstages: [{name: a, until: {step: 1}}]\n", nil,
			[]string{"f.yaml:2:1: sedd: unknown key", `f.yaml:4:15: rl.group_size: want a whole number, have "many"`,
				"rl.roc.enabled: want true or false", "f.yaml:6:28: stages[0].until.step: unknown key"}},
		{"impossible values", "rl: {group_size: 32}\nstages:\n- name: a\n  until: {steps: 0}\n  data: {env: maze}\n", nil,
			[]string{"f.yaml:1:6: rl.group_size: is 32, above rl.rollouts_per_problem (16)",
				"f.yaml:4:11: stages[0].until.steps: is 0, want at least 1",
				`f.yaml:5:10: stages[0].data.env: is "maze", want one of chase, verbs, math`}},
		{"unreadable and impossible", "sedd: 3\nsft: {steps: 0, batch_size: x}\nstages: [{name: a}]\n", map[string]string{"rl.group_size": "99", "zork": "1"},
			[]string{"f.yaml:1:1: sedd: unknown key", "f.yaml:2:7: sft.steps: is 0, want at least 1",
				"f.yaml:2:29: sft.batch_size: want a whole number", "rl.group_size: is 99, above", "--set zork=1"}},
		{"no stages", "name: x", nil, []string{"f.yaml: stages: is empty"}},
		{"syntax", "name: [x", nil, []string{"f.yaml:1"}},
		{"fraction for a count", "seed: 1.5\nstages: [{name: a}]", nil, []string{"seed: want a whole number of at least 0"}},
		{"bad size", "rollout: {tool_memory: lots}\nstages: [{name: a}]", nil, []string{`rollout.tool_memory: size "lots"`}},
		{"bad duration", "rollout: {tool_timeout: 4}\nstages: [{name: a, until: {steps: 1}}]", nil, []string{`rollout.tool_timeout: want a duration such as "4s", have "4"`}},
		{"overrides", "stages: [{name: a}]", map[string]string{"rl.rocc.enabled": "true", "seed": "x", "stages[4].name": "b"},
			[]string{`--set rl.rocc.enabled=true: rl.rocc.enabled: unknown key "rocc"`, "--set seed=x: seed: want", "no element stages[4]"}},
		{"levels", "stages: [{name: a, data: {env: math, levels: [4, 1, 1]}}]", nil,
			[]string{"stages[0].data.levels[0]: environment math has levels 1 to 3, not 4", "stages[0].data.levels[2]: 1 is given twice"}},
		{"roc", "rl: {roc: {mode: best, smoothing: 0, min_positive: 7, min_negative: -2}}\nstages: [{name: a}]", nil,
			[]string{`rl.roc.mode: is "best", want one of paper, released`, "rl.roc.smoothing: is 0, want 1e-06 to 1e+06", "rl.roc.min_negative: is -2, want at least 0"}},
		{"roc minima", "rl: {roc: {min_positive: 7, min_negative: 2}}\nstages: [{name: a}]", nil,
			[]string{"f.yaml:1:12: rl.roc.min_positive: plus rl.roc.min_negative is 9, above rl.group_size (8)"}},
		{"unknown estimator", "rl: {advantage: gae}\nstages: [{name: a}]\n", nil,
			[]string{`rl.advantage: is "gae", want one of group, leave_one_out, no_deviation, reinforce_plus_plus_baseline, pass_at_k`}},
		{"pass@k without a k", "rl: {advantage: pass_at_k}\nstages: [{name: a}]\n", nil,
			[]string{"rl.advantage_k: is 0, want 1 to 7 with rl.advantage pass_at_k"}},
		{"k of a whole group", "rl: {advantage: pass_at_k, advantage_k: 8}\nstages: [{name: a}]\n", nil,
			[]string{"rl.advantage_k: is 8, want 1 to 7"}},
		{"k of nothing", "rl: {advantage: leave_one_out, advantage_k: 2}\nstages: [{name: a}]\n", nil,
			[]string{`rl.advantage_k: is 2 with rl.advantage "leave_one_out": pass_at_k, and no other, has a k`}},
		{"twice", "seed: 1\nseed: 2\n", nil, []string{"f.yaml:2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := config.Load("f.yaml", []byte(tt.yaml), tt.set)
			var ps config.Problems
			if !errors.As(err, &ps) {
				t.Fatalf("got %v, want Problems", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got\n%v\nwant a line with %q", err, want)
				}
			}
		})
	}
}

func TestRelativeDataPathsCountFromTheFileThatStatesThem(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "run.yaml")
	text := "sft: {data: {path: data/sft.jsonl}}\nstages: [{name: a, data: {path: /abs/a.jsonl}}, {name: b}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	run, err := config.LoadFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{run.SFT.Data.Path, run.Stages[0].Data.Path, run.Stages[1].Data.Path}
	if d := cmp.Diff(got, []string{filepath.Join(dir, "data/sft.jsonl"), "/abs/a.jsonl", ""}); d != "" {
		t.Errorf("paths (-got +want):\n%s", d)
	}
}

// TestOverridesCountFromTheWorkingFolder, in whatever form they state a path.
func TestOverridesCountFromTheWorkingFolder(t *testing.T) {
	dir, here := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "run.yaml")
	text := "sft: {data: {path: a.jsonl}}\nstages: [{name: a, data: {path: b.jsonl}}, {name: b}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(here)
	inFile := []string{"", filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl"), "", ""}
	for name, c := range map[string]struct {
		set  map[string]string
		at   int
		want string
	}{
		"a key":          {map[string]string{"sft.data.path": "x.jsonl"}, 1, filepath.Join(here, "x.jsonl")},
		"a quoted key":   {map[string]string{"sft.data.path": `"x y.jsonl"`}, 1, filepath.Join(here, "x y.jsonl")},
		"a section":      {map[string]string{"sft.data": "{path: ../x.jsonl, num: 3}"}, 1, filepath.Join(filepath.Dir(here), "x.jsonl")},
		"two levels":     {map[string]string{"sft": "{steps: 3, data: {path: x.jsonl}}"}, 1, filepath.Join(here, "x.jsonl")},
		"an element":     {map[string]string{"stages[0].data": "{path: x.jsonl}"}, 2, filepath.Join(here, "x.jsonl")},
		"all elements":   {map[string]string{"stages": "[{name: a}, {name: b, data: {path: x.jsonl}}]"}, 3, filepath.Join(here, "x.jsonl")},
		"both":           {map[string]string{"sft.data": "{path: x.jsonl}", "sft.data.path": "y.jsonl"}, 1, filepath.Join(here, "y.jsonl")},
		"absolute":       {map[string]string{"sft.data": "{path: /x.jsonl}"}, 1, "/x.jsonl"},
		"a blob":         {map[string]string{"sft.data.path": "store:x.jsonl"}, 1, "store:x.jsonl"},
		"none":           {map[string]string{"sft.data.path": "", "sft.data.num": "4"}, 1, ""},
		"something else": {map[string]string{"seed": "3", "sft.data.num": "4"}, 1, inFile[1]},
		"a template":     {map[string]string{"rollout.chat_template": "x.jinja"}, 4, filepath.Join(here, "x.jinja")},
		"a built-in one": {map[string]string{"rollout.chat_template": "rstar2"}, 4, "rstar2"},
		"its section":    {map[string]string{"rollout": "{chat_template: x.jinja}"}, 4, filepath.Join(here, "x.jinja")},
		"another start":  {map[string]string{"model.path": "weights"}, 0, filepath.Join(here, "weights")},
		"start, section": {map[string]string{"model": "{path: weights}"}, 0, filepath.Join(here, "weights")},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := config.ResolvePaths(c.set)
			if err != nil {
				t.Fatal(err)
			}
			run, err := config.LoadFile(file, set)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{run.Model.Path, run.SFT.Data.Path, run.Stages[0].Data.Path, run.Stages[1].Data.Path, run.Rollout.ChatTemplate}
			want := slices.Clone(inFile)
			if want[c.at] = c.want; name == "all elements" {
				want[2] = ""
			}
			if d := cmp.Diff(got, want); d != "" {
				t.Errorf("paths (-got +want):\n%s", d)
			}
		})
	}
	for _, set := range []map[string]string{nil, {"nope": "x"}, {"stages[0].x.y": "1"}, {"seed[0]": "[}"}, {"model.path": "[}"}} {
		if out, err := config.ResolvePaths(set); err != nil || len(out) != len(set) {
			t.Errorf("%v became %v (%v)", set, out, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("seed: 1\nrl: {group_size: 2, roc: {mode: paper}}\nstages: [{name: a, until: {steps: 1}}]\n"))
	f.Add([]byte("rl: [1, {a: b}]\nstages: {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		run, err := config.Load("f", data, nil)
		if err == nil && run.Validate() != nil {
			t.Errorf("loaded but invalid: %v", run.Validate())
		}
	})
}
