package config_test

import (
	"errors"
	"os"
	"path/filepath"
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
