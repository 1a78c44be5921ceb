package artifact_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/run/artifact"
)

// TestStoredPolicies: a policy is whole when the run names it; files beside are none.
func TestStoredPolicies(t *testing.T) {
	store, l := memblob.New(), artifact.Layout{RunID: "r"}
	for _, key := range []string{
		l.Policy(10).Dir() + "/policy.json", l.Policy(10).Ref(), l.Policy(9).Dir() + "/policy.json", l.Policy(1000000).Ref(), l.Policy(-1).Ref(),
		l.Dir() + "/policies/v1.json", l.Dir() + "/policies/v1/x", l.Dir() + "/policies/vx.json", artifact.Layout{RunID: "r2"}.Policy(3).Ref(),
		l.Eval(1, "before", 2).Result(), l.Eval(2, "a-v9", 4).Trajectories(), l.Eval(1, "after", 1000000).Group("greedy", "p-v7"), l.Dir() + "/evals/notes.json",
	} {
		if _, err := blob.PutBytes(t.Context(), store, key, nil, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	got, err := artifact.StoredPolicies(t.Context(), store, l)
	want := []artifact.StoredPolicy{
		{Version: -1, Whole: true}, {Version: 9, Files: []string{l.Policy(9).Dir() + "/policy.json"}},
		{Version: 10, Whole: true, Files: []string{l.Policy(10).Dir() + "/policy.json"}}, {Version: 1000000, Whole: true},
	}
	if diff := cmp.Diff(got, want); diff != "" || err != nil {
		t.Errorf("error %v, got -, want +\n%s", err, diff)
	}
	have, err := artifact.Policies(t.Context(), store, l)
	if diff := cmp.Diff(have, []int64{-1, 10, 1000000}); diff != "" || err != nil {
		t.Errorf("error %v, policies: got -, want +\n%s", err, diff)
	}
	evaluated, err := artifact.EvaluatedPolicies(t.Context(), store, l)
	if diff := cmp.Diff(evaluated, []int64{2, 4, 1000000}); diff != "" || err != nil {
		t.Errorf("error %v, evaluated: got -, want +\n%s", err, diff)
	}
}
