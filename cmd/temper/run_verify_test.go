package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/cli"
	"temper/internal/run/chain"
	"temper/internal/run/runtest"
)

// TestRunVerify: a whole run passes, both ways; a flipped bit of a batch and a deleted
// trajectory are named and end with 1, mistakes of the user with 2.
func TestRunVerify(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 1, true)
	home := t.TempDir()
	t.Setenv("TEMPER_HOME", home)
	t.Setenv("TEMPER_STORE", "")
	store, err := fileblob.New(filepath.Join(home, "store"))
	if err != nil {
		t.Fatal(err)
	}
	for key, data := range runtest.Dump(t, h.Store) {
		runtest.Put(t, store, key, data)
	}
	var report chain.Report
	if err := json.Unmarshal([]byte(output(t, "run", "verify", "demo", "--json")), &report); err != nil || !report.Ended || report.Steps != 1 {
		t.Errorf("%+v (%v)", report, err)
	}
	for _, args := range [][]string{{"run", "verify", "demo"}, {"run", "verify", "demo", "--head", report.Head.Link[:12]}, {"store", "verify", "demo"}, {"store", "verify"}} {
		if text := output(t, args...); !strings.Contains(text, "run demo (ended): 1 steps (1 to 1), 3 manifests, ") || !strings.HasSuffix(text, "\nseal "+report.Head.Seal+"\n") {
			t.Errorf("%q printed %q", args, text)
		}
	}
	batch, err := blob.ReadKey(t.Context(), store, h.Layout.Step(1).Batch())
	if err != nil {
		t.Fatal(err)
	}
	batch[9] ^= 1
	runtest.Put(t, store, h.Layout.Step(1).Batch(), string(batch))
	flipped, deleted := h.Layout.Step(1).Batch(), h.Layout.Policy(1).Dir()+"/config.json"
	if err := os.Remove(filepath.Join(home, "store", deleted)); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[int][]string{
		cli.ExitSystem: {"run", "verify", "demo"}, cli.ExitUser: {"run", "verify", "nobody"},
	} {
		var stdout, stderr bytes.Buffer
		if code := execute(args, &stdout, &stderr); code != want {
			t.Errorf("%q: exit code %d, want %d: %s", args, code, want, stderr.String())
		}
		if want != cli.ExitSystem {
			continue
		}
		for _, line := range []string{flipped + ": damaged: want ", deleted + ": missing: want "} {
			if !strings.Contains(stdout.String(), line) {
				t.Errorf("%q printed %q, want %q in it", args, stdout.String(), line)
			}
		}
	}
	var stdout, stderr bytes.Buffer
	if code := execute([]string{"run", "verify", "demo", "--head", "xyz"}, &stdout, &stderr); code != cli.ExitUser {
		t.Errorf("a head that is none: exit code %d", code)
	}
	if code := execute([]string{"store", "verify", "demo"}, &stdout, &stderr); code != cli.ExitSystem {
		t.Errorf("store verify: exit code %d", code)
	}
}

// TestRunWithoutAChain is not taken for a good one.
func TestRunWithoutAChain(t *testing.T) {
	savedRun(t)
	var stdout, stderr bytes.Buffer
	if code := execute([]string{"run", "verify", "demo"}, &stdout, &stderr); code != cli.ExitSystem || !strings.Contains(stderr.String(), "has no chain") {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
}
