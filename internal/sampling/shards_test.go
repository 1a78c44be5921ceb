package sampling_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
)

// unreadable is a store that cannot read the keys which end with a text, for now.
type unreadable struct {
	blob.Store
	suffix string
}

func (u unreadable) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if strings.HasSuffix(key, u.suffix) {
		return nil, blob.ErrUnavailable
	}
	return u.Store.Get(ctx, key)
}

// TestAStoreThatFailsKeepsTheShards: while nobody knows whether the batch is stored,
// what it is made of stays.
func TestAStoreThatFailsKeepsTheShards(t *testing.T) {
	h := runtest.New(t, nil)
	in := sampledStep(t, h)
	for _, suffix := range []string{"/rollouts.json", "/batch.json"} {
		_, err := sampling.BuildBatch(t.Context(), unreadable{h.Store, suffix}, in)
		if !errors.Is(err, blob.ErrUnavailable) {
			t.Fatalf("%s cannot be read, and the error is %v", suffix, err)
		}
		for _, shard := range in.Shards {
			if _, err := blob.ReadRef(t.Context(), h.Store, shard); err != nil {
				t.Errorf("%s could not be read: %v", suffix, err)
			}
		}
	}
	if _, err := sampling.BuildBatch(t.Context(), h.Store, in); err != nil {
		t.Error(err)
	}
}

// TestAShardThatIsGone is made again of the groups, and the batch is the same.
func TestAShardThatIsGone(t *testing.T) {
	h := runtest.New(t, nil)
	in := sampledStep(t, h)
	sampled := runtest.Dump(t, h.Store)
	want, err := sampling.BuildBatch(t.Context(), h.Store, in)
	if err != nil {
		t.Fatal(err)
	}
	batch := runtest.Dump(t, h.Store)[h.Layout.Step(1).Batch()]
	h.Store = runtest.Fill(t, sampled)
	if err := h.Store.Delete(t.Context(), in.Shards[0].Key); err != nil {
		t.Fatal(err)
	}
	got, err := sampling.BuildBatch(t.Context(), h.Store, in)
	if diff := cmp.Diff(got, want); err != nil || diff != "" {
		t.Errorf("(%v) got -, want +\n%s", err, diff)
	}
	if diff := cmp.Diff(batch, runtest.Dump(t, h.Store)[h.Layout.Step(1).Batch()]); diff != "" {
		t.Errorf("another batch: want -, got +\n%s", diff)
	}
}

// sampledStep samples step 1 and asks for its batch.
func sampledStep(t *testing.T, h *runtest.Run) sampling.BatchInput {
	t.Helper()
	in := sampleInput(t, h, 1, 1)
	r, _ := h.NewSampling(t)
	out, err := r.SampleGroups(t.Context(), in, r.NewProgress())
	if err != nil {
		t.Fatal(err)
	}
	return sampling.BatchInput{Run: h.Ref, Stage: 1, Step: 1, ProblemIDs: in.ProblemIDs, Shards: out.Shards}
}

// TestAFreshCallReadsNoGroupThatIsNotThere: it asks the folder, and not for each
// problem, which would be a request each on a distant store.
func TestAFreshCallReadsNoGroupThatIsNotThere(t *testing.T) {
	h := runtest.New(t, nil)
	for name, work := range map[string]func(*sampling.Service) error{
		"sample": func(r *sampling.Service) error {
			_, err := r.SampleGroups(t.Context(), sampleInput(t, h, 1, 1), r.NewProgress())
			return err
		},
		"evaluate": func(r *sampling.Service) error {
			_, err := r.Evaluate(t.Context(), sampling.EvaluateInput{Run: h.Ref, Stage: 1, Label: "after", Policy: runtest.PolicyRef(3)}, r.NewProgress())
			return err
		},
		"filter": func(r *sampling.Service) error {
			_, err := r.Filter(t.Context(), sampling.FilterInput{Run: h.Ref, Stage: 2, Policy: runtest.PolicyRef(4)}, r.NewProgress())
			return err
		},
	} {
		r, _ := h.NewSampling(t)
		misses := &missed{Store: h.Store}
		r.Store = misses
		if err := work(r); err != nil {
			t.Fatal(err)
		}
		if misses.n > 2 { // the result, and the record of an evaluation
			t.Errorf("%s asked for %d keys that are not there", name, misses.n)
		}
	}
}

// missed counts the reads of keys that are not there.
type missed struct {
	blob.Store
	n int
}

func (m *missed) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	rc, err := m.Store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		m.n++
	}
	return rc, err
}
