package temporalclient_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/rules"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/retrain"
	"temper/internal/temporalclient"
	"temper/workflows"
)

// TestViews: the text and the JSON of a schedule say when it is due, what was good
// last and how the newest re-training ended.
func TestViews(t *testing.T) {
	store := memblob.New()
	due := time.Date(2027, 1, 2, 3, 0, 0, 0, time.UTC)
	policy, err := blob.PutBytes(t.Context(), store, "runs/n-1/policies/v000004", []byte("weights"), blob.Always)
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string, v any) {
		t.Helper()
		if _, err := blob.PutJSON(t.Context(), store, key, v, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	good := retrain.GoodPolicy{
		RunID: "n-1", Policy: run.Policy{Version: 4, Ref: policy}, Published: due.Add(-time.Hour),
		Scores: []rules.GateScore{{Stage: "hops", Problems: 8, Metrics: map[string]float64{"accuracy": 0.5}}},
	}
	layout := artifact.Schedule{ID: "nightly"}
	put(layout.Good(), good)
	put(layout.Event(due.UnixNano(), "publish", "policy 4"), retrain.Event{ID: "nightly", Time: due, Kind: "publish", Text: "policy 4"})
	nightly := workflows.Schedule{
		ID: "nightly", Next: []time.Time{due}, When: []string{"0 3 * * *"}, Overlap: "skip", Catchup: 6 * time.Hour, Missed: 1,
		Retrain: retrain.Input{Config: json.RawMessage(`"/r.yaml"`), Data: []string{"/d/*.jsonl"}, Set: run.Settings{"seed": "3"}},
	}
	whole, err := temporalclient.DescribeWhole(t.Context(), store, nightly)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := temporalclient.Print(&text, whole); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"nightly, next at 2027-01-02T03:00:00Z", "recipe       /r.yaml --set seed=3", "catch-up 6h0m0s", "left out     0 while another one was going on, 1 later",
		"good policy  n-1@4", "hops", "0.5", "publish  policy 4",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("text\n%swants %q", text.String(), want)
		}
	}
	for _, want := range []string{`"next":"2027-01-02T03:00:00Z"`, `"good":"n-1@4"`, `"catchup_seconds":21600`, `"last":"publish: policy 4"`, `"data":["/d/*.jsonl"]`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("JSON\n%s\nwants %q", data, want)
		}
	}
	fresh, err := temporalclient.Describe(t.Context(), store, workflows.Schedule{ID: "fresh", Paused: true})
	short, shortErr := temporalclient.Describe(t.Context(), store, nightly)
	if err != nil || shortErr != nil || short.Details != nil {
		t.Fatal(err, shortErr, short.Details)
	}
	text.Reset()
	if err := temporalclient.PrintTable(&text, []temporalclient.View{fresh, short}); err != nil {
		t.Fatal(err)
	}
	want := "SCHEDULE  NEXT                  GOOD POLICY  LAST\n" +
		"fresh     paused                none yet     \n" +
		"nightly   2027-01-02T03:00:00Z  n-1@4        publish: policy 4\n"
	if text.String() != want {
		t.Errorf("table\n%swant\n%s", text.String(), want)
	}
}
