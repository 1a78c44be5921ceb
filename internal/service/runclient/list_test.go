package runclient

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/history"
	"temper/internal/run"
	"temper/workflows"
)

// TestListPutsStoreAndServerTogether: the server knows the state of what goes on, the
// store that of what has ended, with the reason, and the last one of everything else.
func TestListPutsStoreAndServerTogether(t *testing.T) {
	store := memblob.New()
	number := func(v float64) *float64 { return &v }
	entries := map[string]run.CatalogEntry{
		"ended":  {State: run.StateStopped, Reason: "by ann: enough", Step: 2, NumSteps: 3, Seed: 4, Reward: number(0.5), Stages: []run.StageAccuracy{{Name: "a", Before: number(0.25)}}},
		"failed": {State: run.StateFailed, Reason: "no file x", NumSteps: 3, Seed: 4},
		"gone":   {State: run.StateTraining, NumSteps: 3},
		"held":   {State: run.StateTraining, Step: 2, NumSteps: 3},
		"iced":   {State: run.StateTraining, Step: 1, NumSteps: 3},
	}
	for id, e := range entries {
		e.RunID = id
		if err := run.PutEntry(t.Context(), store, e, blob.Always); err != nil {
			t.Fatal(err)
		}
		if _, err := blob.PutBytes(t.Context(), store, "runs/"+id+"/config.yaml", nil, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	open := []workflows.OpenRun{{RunID: "held", State: workflows.StatePaused}, {RunID: "new"}, {
		RunID: "iced", State: workflows.StatePaused, Frozen: &workflows.Freeze{By: "ann", Reason: "look", Since: time.Unix(0, 0)},
	}}
	for name, tt := range map[string]struct {
		l    listing
		want []string
	}{
		"with a server": {listing{asked: true, open: open}, []string{
			"RUN     STATE      STEPS  REWARD  SEED  ACCURACY BY STAGE, REASON",
			"ended   stopped    2/3    0.500   4     a 0.25 -> -  by ann: enough",
			"failed  failed     0/3            4     no file x",
			"gone    lost       0/3            0",
			"held    paused     2/3            0",
			"iced    paused     1/3            0     by ann on the server since 1970-01-01T00:00:00Z, temper run resume iced continues it: look",
			"new     preparing",
		}},
		"without one": {listing{}, []string{
			"RUN     STATE     STEPS  REWARD  SEED  ACCURACY BY STAGE, REASON",
			"ended   stopped   2/3    0.500   4     a 0.25 -> -  by ann: enough",
			"failed  failed    0/3            4     no file x",
			"gone    training  0/3            0",
			"held    training  2/3            0",
			"iced    training  1/3            0",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			entries, err := history.List(t.Context(), store)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := WriteList(&out, tt.l.rows(entries)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(out.String()) {
				got = append(got, strings.TrimRight(line, " \n"))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		})
	}
}
