package sampling_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/run/runtest"
	"temper/internal/sampling"
)

// TestEvaluationAndFilterResume after a death before or after each write: groups
// that were stored are not sampled again, and the end is the same.
func TestEvaluationAndFilterResume(t *testing.T) {
	h := runtest.New(t, nil)
	prepared := runtest.Dump(t, h.Store)
	for name, work := range map[string]func(*sampling.Service) error{
		"evaluation": func(r *sampling.Service) error {
			_, err := r.Evaluate(t.Context(), sampling.EvaluateInput{Run: h.Ref, Stage: 1, Label: "after", Policy: runtest.PolicyRef(3)}, r.NewProgress())
			return err
		},
		"filter": func(r *sampling.Service) error {
			_, err := r.Filter(t.Context(), sampling.FilterInput{Run: h.Ref, Stage: 2, Policy: runtest.PolicyRef(4)}, r.NewProgress())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h.Store = runtest.Fill(t, prepared)
			r, _ := h.NewSampling(t)
			calm := runtest.Fate{}
			r.Store = runtest.Mortal{Store: h.Store, Fate: &calm}
			if err := work(r); err != nil {
				t.Fatal(err)
			}
			want := runtest.Dump(t, h.Store)
			if calm.Count < 12 {
				t.Fatalf("only %d moments to die at: groups are not stored one by one", calm.Count)
			}
			for at := 1; at <= calm.Count; at++ {
				h.Store = runtest.Fill(t, prepared)
				dieAndResume(t, h, work, at)
				if diff := cmp.Diff(runtest.Dump(t, h.Store), want); diff != "" {
					t.Fatalf("moment %d: got -, want +\n%s", at, diff)
				}
			}
		})
	}
}

// dieAndResume makes one attempt that dies and one that ends.
func dieAndResume(t *testing.T, h *runtest.Run, work func(*sampling.Service) error, at int) {
	t.Helper()
	f := runtest.Fate{At: at}
	r, _ := h.NewSampling(t)
	r.Store = runtest.Mortal{Store: h.Store, Fate: &f}
	if err := work(r); !errors.Is(err, runtest.ErrDied) {
		t.Fatalf("moment %d: error %v", at, err)
	}
	stored := runtest.Dump(t, h.Store)
	r, engine := h.NewSampling(t)
	if err := work(r); err != nil {
		t.Fatalf("after death %s: %v", f.Names[at-1], err)
	}
	for _, req := range engine.Requests() {
		session := strings.Split(req.Session, "/") // run, purpose, stage, step, problem, ...
		folder := map[string]string{"eval-greedy": "/greedy/", "eval-sampled": "/sampled/", "filter": "-filter/"}[session[1]]
		for key := range stored {
			if strings.Contains(key, folder+session[4]+".json") {
				t.Fatalf("after death %s: %s was sampled again", f.Names[at-1], req.Session)
			}
		}
	}
}
