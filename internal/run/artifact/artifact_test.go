package artifact_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/run/artifact"
)

// TestRunIDs: folders and entries of the catalog, each by its name alone.
func TestRunIDs(t *testing.T) {
	store := memblob.New()
	for _, key := range []string{
		"runs/b/config.yaml", "runs/a/config.yaml", "runs/a/steps/000001/config.yaml", "runs/x y/plan.json", "runs/stray",
		"catalog/b.json", "catalog/c.json", "catalog/x y.json", "catalog/d.txt", "catalog/e/f.json", "other/x/config.yaml",
	} {
		if _, err := blob.PutBytes(t.Context(), store, key, nil, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	ids, cataloged, err := artifact.RunIDs(t.Context(), store)
	if diff := cmp.Diff([][]string{ids, cataloged}, [][]string{{"a", "b"}, {"b", "c"}}); err != nil || diff != "" {
		t.Errorf("runs (%v): got -, want +\n%s", err, diff)
	}
}

func TestEventKind(t *testing.T) {
	l := artifact.Layout{RunID: "a-b"}
	for _, kind := range []string{"skip", "fail", "two-words"} {
		if got := artifact.EventKind(l.Event(7, kind, "a text")); got != kind {
			t.Errorf("kind %q, want %q", got, kind)
		}
	}
}

func TestRunIDForm(t *testing.T) {
	for _, id := range []string{"a", "demo-20260501.2_x", "0", strings.Repeat("x", 64)} {
		if err := artifact.CheckRunID(id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", ".", "..", "-a", ".a", "a/b", "a b", "a\n", "\u00e9", strings.Repeat("x", 65)} {
		if artifact.CheckRunID(id) == nil {
			t.Errorf("run id %q was accepted", id)
		}
	}
}

// TestKeys: no two artifacts of a run share a key, all are below its folder,
// and steps, versions and events sort by number.
func TestKeys(t *testing.T) {
	l := artifact.Layout{RunID: "r"}
	keys := []string{
		l.Config(), l.Plan(), l.Tokenizer(), l.DataReady(), l.Dialogues(), l.Metrics(), l.Summary(), l.Checkpoints(), l.Events(),
		l.TrainProblems(1), l.TrainProblems(2), l.HeldOutProblems(1), l.Filter(1),
		l.Group(1, "p"), l.Group(2, "p"), l.Group(1, "q"), l.Samples(1, "p"), l.Samples(2, "p"), l.Samples(1, "q"), l.Shard(1, "ab"), l.Shard(2, "ab"), l.Batch(1), l.BatchStats(1), l.TrainResult(1), l.StepLog(1), l.Watch(1), l.Watch(2),
		l.SFTResult(25), l.Diverged(25), l.Diverged(26), l.Policy(1), l.PolicyRef(1), l.Policy(2),
		l.Eval(1, "before", 0), l.Eval(2, "before", 0), l.Eval(1, "after", 0), l.Eval(1, "before", 1), l.EvalTrajectories(1, "before", 0),
		l.Event(1, "stop", "a"), l.Event(1, "stop", "b"), l.Event(2, "stop", "a"), l.Event(1, "stage", "a"),
	}
	seen := map[string]bool{}
	for _, key := range keys {
		if seen[key] || !strings.HasPrefix(key, l.Dir()+"/") || blob.CheckKey(key) != nil {
			t.Errorf("key %s is not one of its own below %s", key, l.Dir())
		}
		seen[key] = true
	}
	if l.StepLog(9) > l.StepLog(10) || l.PolicyRef(99) > l.PolicyRef(100) || l.Event(9, "z", "") > l.Event(10, "a", "") {
		t.Error("keys do not sort by number")
	}
}

func TestPutOnceSticks(t *testing.T) {
	store := memblob.New()
	type result struct{ N int }
	if _, ok, err := artifact.Lookup[result](t.Context(), store, "k"); ok || err != nil {
		t.Errorf("found %v (%v) where nothing is", ok, err)
	}
	for _, n := range []int{1, 2} {
		got, err := artifact.PutOnce(t.Context(), store, "k", result{n})
		if err != nil || got.N != 1 {
			t.Errorf("put %d: stored is %d (%v), want the first", n, got.N, err)
		}
	}
	got, ok, err := artifact.Lookup[result](t.Context(), store, "k")
	if !ok || err != nil || got.N != 1 {
		t.Errorf("looked up %+v, %v (%v)", got, ok, err)
	}
	if _, err := blob.PutBytes(t.Context(), store, "k", []byte(`{"N": `), blob.Always); err != nil {
		t.Fatal(err)
	}
	if _, _, err := artifact.Lookup[result](t.Context(), store, "k"); !errors.Is(err, blob.ErrCorrupt) || !strings.Contains(err.Error(), store.Locate("k")) {
		t.Errorf("error %v, want ErrCorrupt naming the place", err)
	}
	if _, err := artifact.PutOnce(t.Context(), store, "k", result{3}); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("error %v, want ErrCorrupt", err)
	}
}
