//go:build integration

package rolloutbench_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/record"
	"temper/tools/bench/rolloutbench"
)

// killedEnv is the folder of the process that will be killed.
const killedEnv = "TEMPER_TEST_ROLLOUTS"

func killPlan(t *testing.T, dir string, token time.Duration) rolloutbench.Plan {
	t.Helper()
	store, err := fileblob.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return rolloutbench.Plan{Store: store, Problems: 12, Rollouts: 8, Tokens: 500, Turns: 5, ToolChars: 60, TokenTime: token}
}

// TestKilledWorker: a worker that is killed with SIGKILL in the middle of a step loses
// nothing that it has stored: not one of those trajectories is sampled again, and the
// step ends with the bytes of one that nobody disturbed.
func TestKilledWorker(t *testing.T) {
	if dir := os.Getenv(killedEnv); dir != "" {
		p := killPlan(t, dir, 6*time.Millisecond)
		_, err := p.Measure(t.Context())
		t.Fatalf("the step ended before its worker was killed: %v", err)
	}
	quiet := killPlan(t, t.TempDir(), 0)
	whole, err := quiet.Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := killPlan(t, dir, 0)
	killWorker(t, p.Store, dir)
	kept, tokens := storedTokens(t, p.Store)
	got, err := p.Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d trajectories were stored when the worker died", kept, got.Trajectories)
	if kept == 0 || got.Sampled != whole.Needed-tokens {
		t.Errorf("%d tokens were sampled again, %d trajectories stored; want %d, the others alone", got.Sampled, kept, whole.Needed-tokens)
	}
	if diff := cmp.Diff(content(t, p.Store), content(t, quiet.Store)); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}

// killWorker samples the step in another process, and kills it when it has stored
// trajectories of groups that are not complete.
func killWorker(t *testing.T, store blob.Store, dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWorker$")
	cmd.Env = append(os.Environ(), killedEnv+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	folder := artifact.Layout{RunID: "rollouts"}.Step(1).EndedFolder()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		infos, _, err := store.ListFolder(t.Context(), folder)
		if err != nil {
			t.Fatal(err)
		}
		if len(infos) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the worker has stored nothing in a minute")
		}
	}
}

// storedTokens are the trajectories that lie in the store, and what was sampled of them.
func storedTokens(t *testing.T, store blob.Store) (n int, tokens int64) {
	t.Helper()
	layout := artifact.Layout{RunID: "rollouts"}
	have := map[string]map[int]bool{}
	for _, folder := range []string{layout.Step(1).EndedFolder(), layout.Step(1).Groups()} {
		infos, _, err := store.ListFolder(t.Context(), folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range infos {
			data, err := blob.ReadKey(t.Context(), store, i.Key)
			if err != nil {
				t.Fatal(err)
			}
			ts, err := record.Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range ts {
				if have[one.ProblemID][one.Rollout] {
					continue
				}
				if have[one.ProblemID] == nil {
					have[one.ProblemID] = map[int]bool{}
				}
				have[one.ProblemID][one.Rollout] = true
				n++
				for _, turn := range one.Turns {
					tokens += int64(turn.End - turn.Start)
				}
			}
		}
	}
	return n, tokens
}
