//go:build integration

package main_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"temper/workflows"
)

// filesBelow reads all files of a folder, by path below it.
func filesBelow(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		out[strings.TrimPrefix(path, folder+"/")], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// spoil changes a byte in the middle of a file.
func spoil(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 0x40
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRunThatProvesItself: a policy that is damaged while the service is down is made
// again by the run itself. Then steps of the run come out again, and what is damaged is
// named and comes back with its bytes.
func TestRunThatProvesItself(t *testing.T) {
	p := newPlace(t)
	up := p.start("up", "--run", ciConfig, "--run-id", "proof", "--set", "stages[0].until.steps=14")
	up.await(`^step +2/`, runTimeout)
	// Between two steps the newest policy is the one that the next step has to read.
	s := &steered{p, "proof"}
	p.temper(0, "run", "pause", s.run)
	s.awaitState(workflows.StatePaused)
	up.signal(syscall.SIGINT)
	up.end(130, 40*time.Second)
	folder := filepath.Join(p.home, "store/runs/proof")
	published, err := filepath.Glob(filepath.Join(folder, "policies/v*/model.safetensors"))
	if err != nil || len(published) < 2 {
		t.Fatalf("policies %q (%v)", published, err)
	}
	newest := slices.Max(published)
	spoil(t, newest)
	up = p.start("up")
	up.await(`^web UI`, time.Minute)
	p.temper(0, "run", "resume", s.run)
	p.temper(0, "run", "follow", s.run)
	up.signal(syscall.SIGINT)
	up.end(0, 30*time.Second)
	if events, err := filepath.Glob(filepath.Join(folder, "events/*-repair-*.json")); err != nil || len(events) != 1 {
		t.Errorf("events of repairs: %q (%v), want one", events, err)
	}
	if out := p.temper(0, "run", "verify", "proof", "--step", "1,3"); strings.Count(out, "objects are equal") != 2 || strings.Contains(out, "differs") {
		t.Errorf("run verify of two steps:\n%s", out)
	}

	whole := filesBelow(t, folder)
	trajectories, err := filepath.Glob(filepath.Join(folder, "steps/000003/trajectories/*.jsonl"))
	if err != nil || len(trajectories) == 0 {
		t.Fatalf("trajectories %q (%v)", trajectories, err)
	}
	spoil(t, trajectories[0])
	spoil(t, newest)
	if err := os.Remove(filepath.Join(folder, "steps/000004/batch.json")); err != nil {
		t.Fatal(err)
	}
	key := strings.TrimPrefix(trajectories[0], filepath.Join(p.home, "store")+"/")
	if out := p.temper(1, "run", "verify", "proof", "--step", "3"); !strings.Contains(out, "differs  "+key) {
		t.Errorf("run verify does not name %s:\n%s", key, out)
	}
	if out := p.temper(0, "run", "verify", "proof", "--repair"); !strings.Contains(out, "3 of 3 objects are whole again") {
		t.Errorf("run repair:\n%s", out)
	}
	after := filesBelow(t, folder)
	maps.DeleteFunc(after, func(name string, _ []byte) bool { return strings.HasPrefix(name, "events/") && whole[name] == nil })
	if !maps.EqualFunc(after, whole, bytes.Equal) {
		t.Error("the run is not what it was before")
	}
	p.temper(0, "run", "verify", "proof", "--sample", "1%")
	noOrphans(t, 5*time.Second)
}
