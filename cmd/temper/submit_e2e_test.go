//go:build integration

package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"temper/internal/config"
	"temper/internal/proc/testbin"
)

// TestTwoSubmitsOfOneID at the same moment: one wins, the other is told why it
// did not.
func TestTwoSubmitsOfOneID(t *testing.T) {
	p := newPlace(t)
	up := p.start("up")
	up.await("^submit a run with", time.Minute)
	var wg sync.WaitGroup
	codes, texts := make([]int, 2), make([]string, 2)
	for i := range codes {
		wg.Go(func() {
			args := append([]string{"run", "submit", ciConfig, "--run-id", "twin"}, p.flags()...)
			cmd := exec.Command(filepath.Join(bin, "temper"), args...)
			cmd.Env = testbin.Environment()
			out, _ := cmd.CombinedOutput() // the exit code is looked at
			codes[i], texts[i] = cmd.ProcessState.ExitCode(), string(out)
		})
	}
	wg.Wait()
	loser := 0
	if codes[0] == 0 {
		loser = 1
	}
	if codes[0]+codes[1] != 2 || !strings.Contains(texts[loser], "twin") {
		t.Errorf("exit codes %v, want 0 and 2, and a loser that knows why:\n%s", codes, strings.Join(texts, "\n"))
	}
	if !strings.Contains(texts[loser], "going on already") && !strings.Contains(texts[loser], "exists already") {
		t.Errorf("the loser says:\n%s", texts[loser])
	}
	// A submit returns when the run has accepted its configuration.
	if _, err := os.Stat(filepath.Join(p.home, "store/runs/twin/config.yaml")); err != nil {
		t.Errorf("the winner left no run: %v", err)
	}
	up.signal(syscall.SIGINT)
	up.end(0, 30*time.Second)
	noOrphans(t, 5*time.Second)
}

// TestSubmitSaysWhatIsWrong: what a run finds wrong with its input ends the command
// that started it with the user's exit code and one line, also where only the run
// can see it.
func TestSubmitSaysWhatIsWrong(t *testing.T) {
	p := newPlace(t)
	up := p.start("up")
	up.await("^submit a run with", time.Minute)
	dir := t.TempDir()
	recipe, one := filepath.Join(dir, "start.yaml"), filepath.Join(dir, "one.jsonl")
	text := "model: {path: nowhere}\nsft: {steps: 0}\nstages: [{name: a, data: {env: chase, levels: [1], num: 64}, until: {steps: 2}}]\n"
	problem, err := exec.CommandContext(t.Context(), filepath.Join(bin, "temper"), "data", "generate", "--num", "1").Output()
	for path, data := range map[string][]byte{recipe: []byte(text), one: problem} {
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	refused := func(want string, args ...string) {
		t.Helper()
		out := strings.TrimSpace(p.temper(2, args...))
		if !strings.Contains(out, want) || strings.Contains(out, "\n") || strings.Contains(out, "type:") || strings.Contains(out, "started") {
			t.Errorf("temper %s says\n%s\nwant one line with %q", strings.Join(args, " "), out, want)
		}
	}
	refused("model.path: "+filepath.Join(dir, "nowhere")+": no such file", "run", "submit", recipe, "--run-id", "bad")
	refused("1 problem, want at least 2", "run", "submit", ciConfig, "--set", "stages[0].data.path="+one)
	if out := p.temper(0, "run", "status", "bad"); !regexp.MustCompile(`(?m)^state +failed$`).MatchString(out) || strings.Count(out, "no such file") != 1 {
		t.Errorf("status of a run that has failed:\n%s", out)
	}
	refused(`stages[0].data.env: is "maze"`, "run", "submit", ciConfig, "--set", "stages[0].data.env=maze")

	var started struct {
		Opened   bool   `json:"opened"`
		NumSteps int    `json:"num_steps"`
		Page     string `json:"page"`
	}
	silent := *p
	silent.ui = config.DefaultUI // as if nobody had said where it is
	out := silent.temper(0, "run", "submit", ciConfig, "--run-id", "good", "--json")
	if err := json.Unmarshal([]byte(out), &started); err != nil || !started.Opened || started.NumSteps != ciSteps {
		t.Errorf("%v: %+v, want an opened run of %d steps:\n%s", err, started, ciSteps, out)
	}
	if !strings.HasPrefix(started.Page, "http://"+p.ui+"/") {
		t.Errorf("the page of the run is %s, the web UI at %s", started.Page, p.ui)
	}
	p.start("run", "follow", "good").end(0, runTimeout)
	refused("pause run good: the run is done", "run", "pause", "good")
	refused("1 problem, want at least 2", "run", "fork", "good", "--step", "last", "--set", "stages[2].until.steps=3", "--set", "stages[2].data.path="+one)
	if out := p.temper(0, "run", "list"); !strings.Contains(out, "failed") {
		t.Errorf("the fork that failed is not in the list:\n%s", out)
	}
	up.signal(syscall.SIGINT)
	up.end(0, 30*time.Second)
	noOrphans(t, 5*time.Second)
}
