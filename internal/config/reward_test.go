package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"temper/internal/config"
)

const oneStage = "stages: [{name: a, data: {env: chase, levels: [1], num: 64}, max_response_tokens: 64, max_turns: 2, until: {steps: 1}}]\n"

// TestCodeCountsFromTheConfiguration: paths of code are relative to the file, and those of
// overrides to the working folder.
func TestCodeCountsFromTheConfiguration(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "run.yaml")
	if err := os.WriteFile(file, []byte(oneStage+"reward: {path: r.py}\nrollout: {tools: [python, {path: sub/t.py}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	set, err := config.ResolvePaths(map[string]string{"rollout.tools.more.path": "m.py"})
	if err != nil {
		t.Fatal(err)
	}
	run, err := config.LoadFile(file, set)
	if err != nil {
		t.Fatal(err)
	}
	files := run.Rollout.Tools.Files()
	if run.Reward.Path != filepath.Join(folder, "r.py") || len(files) != 2 || files[0].Options.Path != filepath.Join(folder, "sub/t.py") ||
		files[1].Options.Path != filepath.Join(here, "m.py") {
		t.Errorf("paths %q and %+v", run.Reward.Path, files)
	}
	if run.Reward.Limit() != 10*time.Second {
		t.Errorf("limit %v, want 10 s", run.Reward.Limit())
	}
}

// TestRunsWithoutCodeKeepTheirHash: the sections of today add nothing to them.
func TestRunsWithoutCodeKeepTheirHash(t *testing.T) {
	run, err := config.Load("f", []byte(oneStage), nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := run.YAML()
	if err != nil || strings.Contains(string(data), "reward:") || strings.Contains(string(data), "tools:") {
		t.Errorf("the frozen form (%v) names a reward or tools:\n%s", err, data)
	}
}

func TestRewardsThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		"{path: r.txt}":                   `reward.path: is "r.txt", want a file ending in .py`,
		"{timeout: 2s}":                   "reward.path: is empty, but other keys",
		"{path: r.py, timeout: 1ms}":      "reward.timeout: is 1ms, want 0, or 100ms to 10m",
		"{path: r.py, on_error: nothing}": `reward.on_error: is "nothing", want one of stop, exclude`,
	} {
		if _, err := config.Load("f", []byte(oneStage+"reward: "+text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v\nwant %s", text, err, want)
		}
	}
	if err := config.Amendable("reward.path"); err == nil || !strings.Contains(err.Error(), "the rewards of the run so far came from it") {
		t.Errorf("reward.path can be amended: %v", err)
	}
	if err := config.Amendable("reward.on_error"); err != nil {
		t.Error(err)
	}
}
