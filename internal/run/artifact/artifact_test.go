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
		if got := artifact.EventKind(l.Events().Entry(7, kind, "a text")); got != kind {
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
		l.Config().Opened(), l.Plan(), l.Tokenizer(), l.Data().Ready(), l.SFT().Dialogues(), l.Metrics(), l.Summary(), l.Checkpoints(), l.Events().Dir(),
		l.Stage(1).Train(), l.Stage(2).Train(), l.Stage(1).HeldOut(), l.Stage(1).Filter(),
		l.Step(1).Group("p"), l.Step(2).Group("p"), l.Step(1).Group("q"), l.Step(1).Samples("p"), l.Step(2).Samples("p"), l.Step(1).Samples("q"), l.Step(1).Shard("ab"), l.Step(2).Shard("ab"), l.Step(1).Batch(), l.Step(1).BatchStats(), l.Step(1).TrainResult(), l.Step(1).Log(), l.Step(1).Watch(), l.Step(2).Watch(),
		l.SFT().Result(25), l.Diverged(25), l.Diverged(26), l.Policy(1).Dir(), l.Policy(1).Ref(), l.Policy(2).Dir(),
		l.Eval(1, "before", 0).Result(), l.Eval(2, "before", 0).Result(), l.Eval(1, "after", 0).Result(), l.Eval(1, "before", 1).Result(), l.Eval(1, "before", 0).Trajectories(),
		l.Events().Entry(1, "stop", "a"), l.Events().Entry(1, "stop", "b"), l.Events().Entry(2, "stop", "a"), l.Events().Entry(1, "stage", "a"),
	}
	seen := map[string]bool{}
	for _, key := range keys {
		if seen[key] || !strings.HasPrefix(key, l.Dir()+"/") || blob.CheckKey(key) != nil {
			t.Errorf("key %s is not one of its own below %s", key, l.Dir())
		}
		seen[key] = true
	}
	if l.Step(9).Log() > l.Step(10).Log() || l.Policy(99).Ref() > l.Policy(100).Ref() || l.Events().Entry(9, "z", "") > l.Events().Entry(10, "a", "") {
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
