package history_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// TestReaders: what a run left comes back through one package.
func TestReaders(t *testing.T) {
	store := memblob.New()
	opened(t, store, "r", 3)
	l := artifact.Layout{RunID: "r"}
	logged(t, store, "r", 1, "stage", "a")
	logged(t, store, "r", 2, "amend", "b")
	putJSON(t, store, l.Eval(1, "before", 0).Result(), run.Evaluation{Label: "before"})
	putJSON(t, store, l.Eval(1, "after", 3).Group("greedy", "p"), "one that goes on")
	for version := range int64(3) {
		putJSON(t, store, l.Policy(version).Ref(), run.Policy{Version: version})
	}
	for key, text := range map[string]string{
		l.Step(2).Group("p-1"): `{"problem_id":"p-1"}` + "\n" + `{"problem_id":"p-1","rollout":1}` + "\n", l.Step(2).Group("q"): "{", l.Step(2).Batch(): "{}",
	} {
		if _, err := blob.PutBytes(t.Context(), store, key, []byte(text), blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	r := mustOpen(t, store, "r")
	events, err := r.Events(t.Context())
	if err != nil || len(events) != 2 || events[0].Text != "a" || events[1].Text != "b" {
		t.Errorf("events %+v (%v)", events, err)
	}
	evals, err := r.Evaluations(t.Context())
	if err != nil || len(evals) != 1 || evals[0].Label != "before" {
		t.Errorf("evaluations %+v (%v)", evals, err)
	}
	policies, err := r.Policies(t.Context())
	newest, newestErr := history.NewestPolicy(t.Context(), store, "r")
	if err != nil || newestErr != nil || len(policies) != 3 || newest != 2 {
		t.Errorf("policies %v (%v), newest %d (%v)", policies, err, newest, newestErr)
	}
	problems, err := r.Problems(t.Context(), 2)
	if diff := cmp.Diff([]string{"p-1", "q"}, problems); diff != "" || err != nil {
		t.Errorf("problems (%v): want -, got +\n%s", err, diff)
	}
	group, err := r.Group(t.Context(), 2, "p-1")
	if err != nil || len(group) != 2 || group[1].Rollout != 1 {
		t.Errorf("group %+v (%v)", group, err)
	}
	if _, err := r.Group(t.Context(), 2, "q"); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("a torn group gave %v", err)
	}
	if _, err := r.Group(t.Context(), 1, "q"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("no group gave %v", err)
	}
	if _, ok, err := r.NewestCheckpoint(t.Context()); ok || err != nil {
		t.Errorf("no checkpoint: %v (%v)", ok, err)
	}
	if _, err := history.NewestPolicy(t.Context(), store, "nobody"); err == nil {
		t.Error("nobody has a policy")
	}
}
