package main

import (
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/run"
	"temper/workflows"
)

// fail says in the store that the run has failed.
func fail(t *testing.T, dir, text string) {
	t.Helper()
	store, err := fileblob.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	err = run.LogEvent(t.Context(), store, run.Event{Run: run.Ref{RunID: "demo"}, Time: time.Now(), Kind: run.EventFail, Text: text})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAFailedRunSaysWhy in the list, in its status and when it is shown: once, in
// plain words, and without a server.
func TestAFailedRunSaysWhy(t *testing.T) {
	fail(t, savedRun(t), "no file x (type: InvalidConfig, retryable: false): cause")
	t.Setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
	for want, args := range map[string][]string{
		"demo  failed  0/9            5     no file x\n": {"run", "list"},
		"run demo failed: no file x\n":                   {"run", "show", "demo"},
		"reason      no file x\n":                        {"run", "status", "demo"},
		"checkpoint  after step 3\n":                     {"run", "status", "demo"},
		`"reason": "no file x"`:                          {"run", "list", "--json"},
		`"state": "failed"`:                              {"run", "status", "demo", "--json"},
		"1 runs are in the list\n":                       {"store", "index"},
	} {
		text := output(t, args...)
		if strings.Count(text, want) != 1 || strings.Count(text, "no file x") > 1 || strings.Contains(text, "InvalidConfig") {
			t.Errorf("%q printed\n%s\nwant %q once", args, text, want)
		}
	}
}

// TestEvaluatesTheNewestPolicy that is published, whether or not the run has ended.
func TestEvaluatesTheNewestPolicy(t *testing.T) {
	dir := savedRun(t)
	p := place()
	p.Store = "file://" + dir
	input := func(version *int64) workflows.EvaluateRunInput {
		t.Helper()
		in, err := evalInput(t.Context(), p, "demo", version)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	if in := input(nil); *in.Version != 3 || in.Final {
		t.Errorf("of a run that goes on: policy %d, final %v", *in.Version, in.Final)
	}
	store, err := fileblob.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := blob.PutBytes(t.Context(), store, "runs/demo/summary.json", []byte(`{"policy_version": 3}`), blob.Always); err != nil {
		t.Fatal(err)
	}
	if in := input(nil); *in.Version != 3 || !in.Final {
		t.Errorf("of a run that has ended: policy %d, final %v", *in.Version, in.Final)
	}
	older := int64(2)
	if in := input(&older); *in.Version != 2 || in.Final {
		t.Errorf("of an older policy: policy %d, final %v", *in.Version, in.Final)
	}
}

// TestShellCompletesRunIDs of every command that takes a run, and of no other.
func TestShellCompletesRunIDs(t *testing.T) {
	savedRun(t)
	for line, want := range map[string]string{
		"run show ": "demo", "run status d": "demo", "run compare ": "demo", "run fork ": "demo", "run pause ": "demo",
		"eval ": "demo", "store verify ": "demo", "run export ": "demo",
		"run show x": "", "run show demo ": "", "run compare demo ": "", "run list ": "", "doctor ": "",
	} {
		words := strings.Split("__complete "+line, " ")
		got, _, _ := strings.Cut(output(t, words...), ":")
		if strings.TrimSpace(got) != want {
			t.Errorf("%q completes to %q, want %q", line, got, want)
		}
	}
}
