package runtest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
)

func put(t *testing.T, store blob.Store, key, data string) {
	t.Helper()
	if _, err := blob.PutBytes(t.Context(), store, key, []byte(data), blob.Always); err != nil {
		t.Fatal(err)
	}
}

// TestContentsIgnoreTheClock: a different time is no difference, a different value is one.
func TestContentsIgnoreTheClock(t *testing.T) {
	run := artifact.Layout{RunID: "r"}
	read := func(started string, loss, extra string) runtest.Contents {
		store := memblob.New()
		put(t, store, run.Step(1).Log(), `{"started": "`+started+`", "metrics": {"loss": `+loss+`, "timing_s/step": `+extra+`, "perf/throughput": `+extra+`}}`)
		put(t, store, run.Metrics(), `{"ended": "`+started+`", "loss": `+loss+`}`+"\n"+`{"loss": 2}`)
		put(t, store, "runs/r/events/000"+extra+"-stage-aa.json", `{"time": "`+started+`", "kind": "stage"}`)
		put(t, store, "runs/r/policies/v000001/model.safetensors", "weights "+loss)
		put(t, store, "runs/r/checkpoints/shards/x.safetensors", started)
		put(t, store, "runs/r/policies/v000001/pending/"+extra+".json", started)
		c, err := runtest.ReadContents(t.Context(), store, run)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if diff := runtest.CompareContents(read("a", "0.125", "1"), read("b", "0.125", "2")); len(diff) != 0 {
		t.Errorf("runs that differ in time alone: %+v", diff)
	}
	diff := runtest.CompareContents(read("a", "0.124", "1"), read("a", "0.125", "1"))
	want := []runtest.Difference{
		{"metrics.jsonl", "changed", 1}, {"policies/v000001/model.safetensors", "changed", 1}, {"steps/000001/step.json", "changed", 1},
	}
	if d := cmp.Diff(diff, want); d != "" {
		t.Errorf("got -, want +\n%s", d)
	}
}

// TestMissingExtraAndDoubledObjects are differences.
func TestMissingExtraAndDoubledObjects(t *testing.T) {
	run := artifact.Layout{RunID: "r"}
	store := memblob.New()
	put(t, store, "runs/r/events/1-stage-aa.json", `{}`)
	put(t, store, "runs/r/plan.json", `{}`)
	want, err := runtest.ReadContents(t.Context(), store, run)
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, "runs/r/events/2-stage-aa.json", `{}`)
	if err := store.Delete(t.Context(), "runs/r/plan.json"); err != nil {
		t.Fatal(err)
	}
	got, err := runtest.ReadContents(t.Context(), store, run)
	if err != nil {
		t.Fatal(err)
	}
	diff := runtest.CompareContents(want, got)
	if len(diff) != 2 || diff[0].Kind != "extra" || diff[0].Name != "events/stage-aa.json#2" || diff[1].Kind != "missing" {
		t.Errorf("%+v, want an event that was logged twice and a plan that is missing", diff)
	}
}
