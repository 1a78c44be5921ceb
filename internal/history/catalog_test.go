package history_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/setup"
	"temper/internal/series"
)

// finished ends a run.
func finished(t *testing.T, store blob.Store, plan run.Plan, second int, stopped bool) {
	t.Helper()
	in := run.FinishInput{Run: run.Ref{RunID: plan.RunID, Config: plan.Config}, Started: at(1), Ended: at(second), Stopped: stopped}
	for _, s := range plan.Stages {
		in.Stages = append(in.Stages, run.StageReport{Plan: s, Before: run.Evaluation{Label: "before", Accuracy: 0.25}})
	}
	if _, err := run.Finish(t.Context(), store, in, &run.Chain{}, 0); err != nil {
		t.Fatal(err)
	}
}

// TestCatalogFollowsARun: each writer leaves what the list of runs needs, and the
// newest fact counts.
func TestCatalogFollowsARun(t *testing.T) {
	store := memblob.New()
	plan := opened(t, store, "r", 2, 3)
	entry := func() run.CatalogEntry {
		t.Helper()
		all, err := history.List(t.Context(), store)
		if err != nil || len(all) != 1 {
			t.Fatalf("list %+v (%v)", all, err)
		}
		return all[0]
	}
	number := func(v float64) *float64 { return &v }
	want := run.CatalogEntry{RunID: "r", Format: run.Format, Name: "r", State: run.StatePreparing, NumSteps: 5, Seed: plan.Seed, Started: at(0)}
	expect := func(what string) {
		t.Helper()
		if diff := cmp.Diff(want, entry()); diff != "" {
			t.Errorf("%s: want -, got +\n%s", what, diff)
		}
	}
	expect("opened")
	made(t, store, plan, 1)
	want.State, want.Stage, want.Step, want.Reward, want.Updated = run.StateTraining, "s1", 1, number(0.001), at(10)
	expect("first step")
	logged(t, store, "r", 11, run.EventPause, "before step 2 by ann: lunch")
	want.State, want.Reason, want.Updated = run.StatePaused, "before step 2 by ann: lunch", at(11)
	expect("paused")
	logged(t, store, "r", 11, "amend", "lr")
	made(t, store, plan, 1) // by a worker that was dead for a while
	expect("a repeated step")
	logged(t, store, "r", 12, run.EventResume, "before step 2")
	want.State, want.Reason, want.Updated = run.StateTraining, "", at(12)
	expect("resumed")
	made(t, store, plan, 3)
	want.Stage, want.Step, want.Reward, want.Updated = "s2", 3, number(0.003), at(30)
	expect("third step")
	logged(t, store, "r", 40, run.EventFail, "no file x (type: InvalidConfig, retryable: false): cause")
	want.State, want.Reason, want.Updated = run.StateFailed, "no file x", at(40)
	expect("failed")
	logged(t, store, "r", 50, run.EventStop, "enough")
	finished(t, store, plan, 50, true)
	want.State, want.Reason, want.Started, want.Updated = run.StateStopped, "enough", at(1), at(50)
	want.Stages = []run.StageAccuracy{{Name: "s1", Before: number(0.25)}, {Name: "s2", Before: number(0.25)}}
	expect("stopped")
}

// TestIndexMakesTheCatalogAgain: what is made from the folders is what the writers
// wrote, whether or not the catalog is there.
func TestIndexMakesTheCatalogAgain(t *testing.T) {
	store := memblob.New()
	for _, id := range []string{"done", "failed", "held", "new"} {
		plan := opened(t, store, id, 2, 3)
		if id == "new" {
			continue
		}
		made(t, store, plan, 1)
		made(t, store, plan, 3) // the first stage ended early
		switch id {
		case "done":
			finished(t, store, plan, 40, false)
		case "failed":
			logged(t, store, id, 31, run.EventFail, "no disk")
		case "held":
			logged(t, store, id, 11, run.EventPause, "long ago")
			logged(t, store, id, 12, run.EventResume, "")
			logged(t, store, id, 32, run.EventPause, "lunch")
		}
	}
	if _, err := blob.PutBytes(t.Context(), store, "runs/stray/x", nil, blob.Always); err != nil {
		t.Fatal(err)
	}
	clock := cmpopts.IgnoreFields(run.CatalogEntry{}, "Started") // that of the plan's file
	want, err := history.List(t.Context(), store)
	if err != nil || len(want) != 4 {
		t.Fatalf("list %+v (%v)", want, err)
	}
	check := func(what string) {
		t.Helper()
		got, err := history.List(t.Context(), store)
		if diff := cmp.Diff(want, got, clock); diff != "" || err != nil {
			t.Errorf("%s (%v): want -, got +\n%s", what, err, diff)
		}
	}
	catalog := func(id string) string { return artifact.Layout{RunID: id}.Catalog() }
	for _, e := range want {
		if err := store.Delete(t.Context(), catalog(e.RunID)); err != nil {
			t.Fatal(err)
		}
	}
	check("without a catalog")
	for key, text := range map[string]string{catalog("done"): "{", catalog("held"): `{"run_id": "other"}`, catalog("gone"): `{"run_id": "gone"}`} {
		if _, err := blob.PutBytes(t.Context(), store, key, []byte(text), blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	check("with a damaged one")
	if n, err := history.Index(t.Context(), store); n != 4 || err != nil {
		t.Errorf("indexed %d (%v)", n, err)
	}
	check("indexed")
	infos, err := store.List(t.Context(), artifact.CatalogRoot+"/")
	if err != nil || len(infos) != 4 {
		t.Errorf("catalog %v (%v)", infos, err)
	}
	made(t, store, mustOpen(t, store, "held").Plan, 4)
	if e, err := mustOpen(t, store, "held").Entry(t.Context()); e.Step != 4 || err != nil {
		t.Errorf("entry %+v (%v)", e, err)
	}
}

func mustOpen(t *testing.T, store blob.Store, id string) *history.Run {
	t.Helper()
	r, err := history.Open(t.Context(), store, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// away is how far a store of the cloud is.
const away = 50 * time.Millisecond

// TestListOfManyRunsIsFast: 200 runs of the paper's length on a store that is 50 ms
// away, with and without a catalog.
func TestListOfManyRunsIsFast(t *testing.T) {
	store := memblob.New()
	paperRun(t, store, "r000", 3)
	infos, err := store.List(t.Context(), "runs/r000/")
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 200; i++ {
		plan := opened(t, store, fmt.Sprintf("r%03d", i), 170, 170, 170)
		l := artifact.Layout{RunID: plan.RunID}
		for _, step := range []int{1, 2, 169, 170, 171, 340} {
			if _, err := blob.PutJSON(t.Context(), store, l.StepLog(step), run.StepRecord{Step: step}, blob.Always); err != nil {
				t.Fatal(err)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		d := &distant{Store: store, away: away}
		began := time.Now()
		entries, err := history.List(t.Context(), d)
		took := time.Since(began)
		if err != nil || len(entries) != 200 || took > 6*away || d.listed != 400 || d.mostTimes > 64 {
			t.Errorf("%d entries (%v) in %v with %d requests, %d at once, %d keys listed", len(entries), err, took, d.requests, d.mostTimes, d.listed)
		}
	})
	if err := store.Delete(t.Context(), artifact.Layout{RunID: "r000"}.Catalog()); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		d := &distant{Store: store, away: away}
		began := time.Now()
		entries, err := history.List(t.Context(), d)
		if err != nil || entries[0].Step != 509 || time.Since(began) > 20*away || d.listed > 400 || d.mostTimes > 64 {
			t.Errorf("%+v (%v) in %v, %d at once, %d keys listed of %d", entries[0], err, time.Since(began), d.mostTimes, d.listed, len(infos))
		}
	})
}

// TestRecordsAreReadByNumber: in rounds of many at once, and never by a listing.
func TestRecordsAreReadByNumber(t *testing.T) {
	store := memblob.New()
	paperRun(t, store, "r", 2)
	synctest.Test(t, func(t *testing.T) {
		d := &distant{Store: store, away: away}
		began := time.Now()
		records, err := mustOpen(t, d, "r").Records(t.Context())
		if err != nil || len(records) != 509 || time.Since(began) > 14*away || d.listed > 0 {
			t.Errorf("%d records (%v) in %v with %d requests, %d keys listed", len(records), err, time.Since(began), d.requests, d.listed)
		}
		if !slices.IsSortedFunc(records, func(a, b run.StepRecord) int { return a.Step - b.Step }) {
			t.Error("records are not in order")
		}
	})
}

func TestOpenNamesWhatIsMissing(t *testing.T) {
	for _, id := range []string{"nobody", "a/b"} {
		if _, err := history.Open(t.Context(), memblob.New(), id); err == nil || errors.Is(err, blob.ErrNotExist) {
			t.Errorf("run %q: error %v", id, err)
		}
	}
}

// puts counts writes.
type puts struct {
	blob.Store
	mu   sync.Mutex
	keys []string
}

func (p *puts) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	p.mu.Lock()
	p.keys = append(p.keys, key)
	p.mu.Unlock()
	return p.Store.Put(ctx, key, r, cond)
}

// TestAStepCostsThreePuts: the entry, the record and what the watch knows; a repeated
// step finds the last two.
func TestAStepCostsThreePuts(t *testing.T) {
	store := &puts{Store: memblob.New()}
	plan := opened(t, store, "r", 3)
	l := artifact.Layout{RunID: "r"}
	for _, want := range [][]string{{l.Catalog(), l.StepLog(1), l.Watch(1)}, {l.StepLog(1), l.Watch(1)}} {
		store.keys = nil
		made(t, store, plan, 1)
		if diff := cmp.Diff(want, slices.Sorted(slices.Values(store.keys))); diff != "" {
			t.Errorf("want -, got +\n%s", diff)
		}
	}
}

// TestARecordMayHoldWhatIsNoNumber: a step whose numbers went wrong leaves its
// record, and its entry has no reward.
func TestARecordMayHoldWhatIsNoNumber(t *testing.T) {
	store := memblob.New()
	plan := opened(t, store, "r", 3)
	err := logStep(t, store, run.StepInput{
		Run: run.Ref{RunID: "r", Config: plan.Config}, Stage: 1, Step: 1, NumSteps: 3,
		Rollouts: series.Rollouts{RewardMean: math.NaN(), MeanTurns: math.Inf(1)}, Started: at(0), Ended: at(1),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, store, "r")
	records, err := r.Records(t.Context())
	if err != nil || len(records) != 1 || !math.IsNaN(records[0].Metrics[series.Reward]) || !math.IsInf(records[0].Metrics[series.Turns], 1) {
		t.Errorf("records %+v (%v)", records, err)
	}
	if e, err := r.Entry(t.Context()); err != nil || e.Step != 1 || e.Reward != nil {
		t.Errorf("entry %+v (%v)", e, err)
	}
}

// TestListHasRefusedRuns with the reason, until a run of the id is opened.
func TestListHasRefusedRuns(t *testing.T) {
	store := memblob.New()
	opened(t, store, "other", 1)
	if _, err := blob.PutJSON(t.Context(), store, artifact.Layout{RunID: "gone"}.Catalog(), run.CatalogEntry{RunID: "gone", State: run.StateDone}, blob.Always); err != nil {
		t.Fatal(err)
	}
	open := func(id, config string) error {
		_, err := setup.Open(t.Context(), store, run.Input{RunID: id, Config: []byte(fmt.Sprintf("%q", config))}, setup.Claim{Owner: "w", At: at(5)})
		return err
	}
	list := func() (states []string, refused run.CatalogEntry) {
		t.Helper()
		all, err := history.List(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if states = append(states, e.RunID+" "+e.State); e.Refused {
				refused = e
			}
		}
		return states, refused
	}
	if err := open("r", "seed: -1\n"); err == nil {
		t.Fatal("a negative seed was taken")
	}
	if err := open("other", "seed: -1\n"); err == nil {
		t.Fatal("a negative seed was taken")
	}
	want := []string{"other preparing", "r failed"}
	for _, index := range []bool{false, true} {
		if index {
			if n, err := history.Index(t.Context(), store); err != nil || n != 2 {
				t.Fatalf("%d entries indexed (%v), want 2", n, err)
			}
		}
		states, refused := list()
		if !slices.Equal(states, want) || !strings.Contains(refused.Reason, "seed") || !refused.Ended() {
			t.Errorf("list %q, %+v; want %q and the reason", states, refused, want)
		}
	}
	opened(t, store, "r", 1)
	if states, refused := list(); !slices.Equal(states, []string{"other preparing", "r preparing"}) || refused.Refused {
		t.Errorf("list %q, %+v after the run was opened", states, refused)
	}
	if err := open("r", "seed: -1\n"); err == nil {
		t.Fatal("a negative seed was taken")
	}
	if states, _ := list(); !slices.Equal(states, []string{"other preparing", "r preparing"}) {
		t.Errorf("list %q after another was refused the id of a run", states)
	}
}

// TestEntryHasNoStepBeyondThePlan: what a damaged entry says is read from the folder of the run.
func TestEntryHasNoStepBeyondThePlan(t *testing.T) {
	store := memblob.New()
	plan := opened(t, store, "r", 3)
	made(t, store, plan, 1)
	for _, step := range []int{1 << 40, 4, -1} {
		putJSON(t, store, artifact.Layout{RunID: "r"}.Catalog(), run.CatalogEntry{RunID: "r", Format: run.Format, Step: step})
		r, err := history.Open(t.Context(), store, "r")
		if err != nil {
			t.Fatal(err)
		}
		if e, err := r.Entry(t.Context()); err != nil || e.Step != 1 || e.NumSteps != 3 {
			t.Errorf("an entry with step %d is read as step %d of %d (%v)", step, e.Step, e.NumSteps, err)
		}
	}
}
