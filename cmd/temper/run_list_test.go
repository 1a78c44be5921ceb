package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/workflows"
)

// TestListPutsStoreAndServerTogether: the server knows the state of what goes
// on, the store that of what has ended, and without a server open runs are open.
func TestListPutsStoreAndServerTogether(t *testing.T) {
	store := memblob.New()
	put := func(key, text string) {
		t.Helper()
		if _, err := blob.PutBytes(t.Context(), store, key, []byte(text), blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"ended", "failed", "gone", "held"} {
		l := artifact.Layout{RunID: id}
		put(l.Config(), "")
		put(l.Plan(), `{"run_id": "`+id+`", "seed": 4, "stages": [{"name": "a", "steps": 3}]}`)
	}
	put(artifact.Layout{RunID: "ended"}.Summary(), `{"steps": 2, "stopped": true}`)
	put(artifact.Layout{RunID: "failed"}.Event(1, "stage", "a"), `{}`)
	put(artifact.Layout{RunID: "failed"}.Event(2, "fail", "b"), `{}`)
	put(artifact.Layout{RunID: "held"}.StepLog(2), `{"step": 2}`)
	open := []workflows.OpenRun{{RunID: "held", State: workflows.StatePaused}, {RunID: "new"}}
	for name, tt := range map[string]struct {
		l    listing
		want []listRow
	}{
		"with a server": {listing{store: store, asked: true, open: open}, []listRow{
			{id: "ended", state: "stopped", steps: "2", seed: "4"}, {id: "failed", state: "failed", steps: "0/3", seed: "4"},
			{id: "gone", state: "lost", steps: "0/3", seed: "4"}, {id: "held", state: "paused", steps: "2/3", seed: "4"},
			{id: "new", state: "preparing"},
		}},
		"without one": {listing{store: store}, []listRow{
			{id: "ended", state: "stopped", steps: "2", seed: "4"}, {id: "failed", state: "failed", steps: "0/3", seed: "4"},
			{id: "gone", state: "open", steps: "0/3", seed: "4"}, {id: "held", state: "open", steps: "2/3", seed: "4"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.l.rows(t.Context())
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(listRow{})); err != nil || diff != "" {
				t.Errorf("rows (%v), want -, got +\n%s", err, diff)
			}
		})
	}
}
