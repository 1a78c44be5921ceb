//go:build integration

package main_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ownRun copies the example with a tool and a reward function of its own, so that the
// test can change its files.
func ownRun(t *testing.T, home string) (folder string) {
	t.Helper()
	folder = filepath.Join(home, "own")
	if err := os.CopyFS(folder, os.DirFS("../../configs/own")); err != nil {
		t.Fatal(err)
	}
	return folder
}

// ownShort are the overrides that make the example short.
func ownShort() []string {
	return []string{"--set", "sft.steps=60", "--set", "stages[0].until.steps=4", "--set", "eval.num_problems=2", "--set", "checkpoint.every_steps=1", "--set", "rl.problems_per_step=2"}
}

// TestRunWithCodeOfItsOwn: the policy calls a function of a file, another file gives the
// rewards. Trainer, rollout worker and sandbox die on the way and the files change. The
// run has the bits of one that nobody touched, and its steps come out again.
func TestRunWithCodeOfItsOwn(t *testing.T) {
	top := t.TempDir()
	folder := ownRun(t, top)
	arguments := append([]string{"up", "--run", filepath.Join(folder, "own.yaml"), "--run-id", "own"}, ownShort()...)
	calm := newPlace(t)
	calm.start(append(arguments, "--exit")...).end(0, runTimeout)

	p := newPlace(t)
	up := p.start(append(arguments, "--exit")...)
	up.await(`^step +1/`, runTimeout)
	for _, name := range []string{"book.py", "reward.py"} {
		writeAll(t, filepath.Join(folder, name), []byte("raise SystemExit('changed')\n"))
	}
	for step, service := range []string{"trainer", "sandbox", "control"} {
		up.await(fmt.Sprintf(`^step +%d/`, step+1), runTimeout)
		up.killService(service)
	}
	up.end(0, runTimeout)
	noOrphans(t, 5*time.Second)
	runs := []map[string][]byte{}
	for _, home := range []string{calm.home, p.home} {
		files := filesBelow(t, filepath.Join(home, "store/runs/own"))
		maps.DeleteFunc(files, func(name string, _ []byte) bool {
			return !strings.HasSuffix(name, "code.json") && !strings.HasSuffix(name, ".safetensors") && !strings.Contains(name, "/trajectories/") && !strings.HasSuffix(name, ".bin")
		})
		runs = append(runs, files)
	}
	if len(runs[0]) < 4*3 || !maps.EqualFunc(runs[0], runs[1], bytes.Equal) {
		t.Errorf("%d files of a calm run, %d of one with kills: they differ", len(runs[0]), len(runs[1]))
	}
	called, judged := 0, 0
	for name, data := range runs[1] {
		if strings.Contains(name, "/trajectories/") {
			called += bytes.Count(data, []byte(`"name":"lookup","arguments":"{\"key\":`))
			judged += bytes.Count(data, []byte(`"reward_details":"{\"slips\": `))
		}
	}
	if called < 10 || judged != 4*2*8 {
		t.Errorf("%d calls of lookup, %d trajectories judged by reward.py, want 10 and %d", called, judged, 4*2*8)
	}

	up = p.start("up")
	up.await(`^all services up`, time.Minute)
	if out := p.temper(0, "run", "verify", "own", "--step", "2,4"); strings.Count(out, "objects are equal") != 2 || strings.Contains(out, "differs") {
		t.Errorf("run verify of two steps:\n%s", out)
	}
	up.signal(syscall.SIGINT)
	up.end(0, 30*time.Second)
}

// TestCodeThatFails: what shows in the text is refused at once, all of it; what shows in
// the sandbox ends the run with file and line.
func TestCodeThatFails(t *testing.T) {
	folder := ownRun(t, t.TempDir())
	p := newPlace(t)
	arguments := append([]string{"up", "--run", filepath.Join(folder, "own.yaml"), "--exit"}, ownShort()...)
	book, reward := filepath.Join(folder, "book.py"), filepath.Join(folder, "reward.py")
	good := readAll(t, book)
	writeAll(t, book, []byte("def lookup(key):\n    print(key)\n"))
	writeAll(t, reward, []byte("x = 1\n"))
	out := p.temper(2, append(arguments, "--run-id", "unread")...)
	for _, want := range []string{"book.py: line 1: lookup: parameter key has no type hint", "lookup: has no docstring", "reward.py: has no function reward"} {
		if !strings.Contains(out, want) {
			t.Errorf("the refusal lacks %q:\n%s", want, out)
		}
	}
	writeAll(t, book, good)
	writeAll(t, reward, []byte("def reward(key, answer):\n    return 1 / len(answer[:0])\n"))
	up := p.start(append(arguments, "--run-id", "fails", "--set", "sft.steps=2")...)
	up.await(`reward\.py:2: reward ZeroDivisionError: division by zero`, runTimeout)
	<-up.done
	noOrphans(t, 5*time.Second)
}
