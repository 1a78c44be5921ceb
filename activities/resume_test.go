package activities_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/activities"
)

// TestEvaluationAndFilterResume after a death before or after each write: groups
// that were stored are not sampled again, and the end is the same.
func TestEvaluationAndFilterResume(t *testing.T) {
	h := newHouse(t, nil)
	prepared := dump(t, h.store)
	for name, work := range map[string]func(*activities.Rollouts) error{
		"evaluation": func(r *activities.Rollouts) error {
			_, err := r.EvaluatePolicy(t.Context(), activities.EvaluateInput{Run: h.run, Stage: 1, Label: "after", Policy: policyRef(3)})
			return err
		},
		"filter": func(r *activities.Rollouts) error {
			_, err := r.FilterProblems(t.Context(), activities.FilterInput{Run: h.run, Stage: 2, Policy: policyRef(4)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h.store = fill(t, prepared)
			r, _ := h.rollouts(t)
			calm := fate{}
			r.Sampling.Store = mortal{h.store, &calm}
			if err := work(r); err != nil {
				t.Fatal(err)
			}
			want := dump(t, h.store)
			if calm.count < 12 {
				t.Fatalf("only %d moments to die at: groups are not stored one by one", calm.count)
			}
			for at := 1; at <= calm.count; at++ {
				h.store = fill(t, prepared)
				dieAndResume(t, h, work, at)
				if diff := cmp.Diff(dump(t, h.store), want); diff != "" {
					t.Fatalf("moment %d: got -, want +\n%s", at, diff)
				}
			}
		})
	}
}

// dieAndResume makes one attempt that dies and one that ends.
func dieAndResume(t *testing.T, h *house, work func(*activities.Rollouts) error, at int) {
	t.Helper()
	f := fate{at: at}
	r, _ := h.rollouts(t)
	r.Sampling.Store = mortal{h.store, &f}
	if err := work(r); !errors.Is(err, errDied) {
		t.Fatalf("moment %d: error %v", at, err)
	}
	stored := dump(t, h.store)
	r, engine := h.rollouts(t)
	if err := work(r); err != nil {
		t.Fatalf("after death %s: %v", f.names[at-1], err)
	}
	for _, req := range engine.Requests() {
		session := strings.Split(req.Session, "/") // run, purpose, stage, step, problem, ...
		folder := map[string]string{"eval-greedy": "/greedy/", "eval-sampled": "/sampled/", "filter": "-filter/"}[session[1]]
		for key := range stored {
			if strings.Contains(key, folder+session[4]+".json") {
				t.Fatalf("after death %s: %s was sampled again", f.names[at-1], req.Session)
			}
		}
	}
}
