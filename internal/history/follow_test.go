package history_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// word is an entry in short.
func word(e history.Entry) string {
	switch {
	case e.SFT != nil:
		return fmt.Sprint("sft ", e.SFT.To)
	case e.Event != nil:
		return e.Event.Kind + " " + e.Event.Text
	case e.Step != nil:
		return fmt.Sprint("step ", e.Step.Step)
	case e.Evaluation != nil:
		return "eval " + e.Evaluation.Label
	case e.Summary != nil:
		return "summary"
	default:
		return "nothing"
	}
}

func words(entries []history.Entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, word(e))
	}
	return out
}

// ending is the store of a run that ends when somebody asks for its summary.
type ending struct {
	blob.Store
	summary string
	once    sync.Once
	end     func()
}

func (e *ending) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if key == e.summary {
		e.once.Do(e.end)
	}
	return e.Store.Get(ctx, key)
}

// TestSummaryIsTheLastEntry: whoever sees it may go, also when the run ends during a poll.
func TestSummaryIsTheLastEntry(t *testing.T) {
	store := memblob.New()
	plan := opened(t, store, "r", 3, 2)
	made(t, store, plan, 1)
	layout := artifact.Layout{RunID: "r"}
	feed := history.Follow(&ending{Store: store, summary: layout.Summary(), end: func() {
		made(t, store, plan, 2)
		putJSON(t, store, layout.Eval(1, "final", 2).Result(), run.Evaluation{Label: "final"})
		finished(t, store, plan, 60, false)
	}}, "r")
	entries, err := feed.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := words(entries)
	if len(got) == 0 || got[len(got)-1] != "summary" || !slices.Contains(got, "step 2") || !slices.Contains(got, "eval final") {
		t.Errorf("the first poll found %q, want all that comes before the summary", got)
	}
}

// TestFollow yields what a run leaves in order, each thing once, at a steady pace,
// from before the run is there to its summary.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memblob.New()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		feed := history.Follow(store, "r")
		var plan run.Plan
		var got [][]string
		began := time.Now()
		for entries, err := range feed.Entries(ctx) {
			if err != nil {
				break
			}
			got = append(got, words(entries))
			switch len(got) {
			case 1:
				plan = opened(t, store, "r", 3, 2)
				putJSON(t, store, artifact.Layout{RunID: "r"}.SFT().Result(25), run.SFTRecord{To: 25})
			case 2:
				made(t, store, plan, 1)
				made(t, store, plan, 2)
				logged(t, store, "r", 15, "checkpoint", "a")
			case 3:
				logged(t, store, "r", 21, "skip", "b") // the stage ends early
				made(t, store, plan, 4)
			case 4:
				putJSON(t, store, artifact.Layout{RunID: "r"}.Eval(2, "after", 5).Result(), run.Evaluation{Label: "after"})
				made(t, store, plan, 5)
				finished(t, store, plan, 60, false)
			case 6:
				cancel()
			}
		}
		want := [][]string{nil, {"sft 25"}, {"step 1", "checkpoint a", "step 2"}, {"skip b", "step 4"}, {"eval after", "step 5", "summary"}, nil}
		for i := range want {
			if i < len(got) {
				got[i], want[i] = slices.Sorted(slices.Values(got[i])), slices.Sorted(slices.Values(want[i]))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("want -, got +\n%s", diff)
		}
		if took := time.Since(began); took != 5*300*time.Millisecond {
			t.Errorf("six polls in %v", took)
		}
	})
}

func putJSON(t *testing.T, store blob.Store, key string, v any) {
	t.Helper()
	if _, err := blob.PutJSON(t.Context(), store, key, v, blob.Always); err != nil {
		t.Fatal(err)
	}
}

// TestFollowYieldsInOrderOfTime what was there before.
func TestFollowYieldsInOrderOfTime(t *testing.T) {
	store := memblob.New()
	plan := opened(t, store, "r", 3, 2)
	logged(t, store, "r", 5, "stage", "s1")
	for step := 1; step <= 3; step++ {
		made(t, store, plan, step)
	}
	logged(t, store, "r", 25, "amend", "x")
	logged(t, store, "r", 25, "filter", "y")
	finished(t, store, plan, 60, true)
	all, err := history.Follow(store, "r").Poll(t.Context())
	want := []string{"stage s1", "step 1", "step 2", "amend x", "filter y", "step 3", "summary"}
	if diff := cmp.Diff(want, words(all)); diff != "" || err != nil {
		t.Fatalf("all (%v): want -, got +\n%s", err, diff)
	}
	keys := map[string]bool{}
	for _, e := range all {
		keys[e.Key] = true
	}
	if len(keys) != len(all) || keys[""] {
		t.Errorf("%d keys of %d entries", len(keys), len(all))
	}
}

// TestFollowLosesNothingToAnError: what a poll that failed had read comes with the
// next one.
func TestFollowLosesNothingToAnError(t *testing.T) {
	store := memblob.New()
	plan := opened(t, store, "r", 3)
	made(t, store, plan, 1)
	logged(t, store, "r", 5, "stage", "s1")
	putJSON(t, store, artifact.Layout{RunID: "r"}.Summary(), "torn")
	feed := history.Follow(store, "r")
	if got, err := feed.Poll(t.Context()); err == nil {
		t.Fatalf("a torn summary was read: %q", words(got))
	}
	if err := store.Delete(t.Context(), artifact.Layout{RunID: "r"}.Summary()); err != nil {
		t.Fatal(err)
	}
	got, err := feed.Poll(t.Context())
	if diff := cmp.Diff([]string{"stage s1", "step 1"}, words(got)); diff != "" || err != nil {
		t.Errorf("want - (%v), got +\n%s", err, diff)
	}
}
