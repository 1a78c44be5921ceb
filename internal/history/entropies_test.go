package history_test

import (
	"testing"

	"temper/internal/history"
	"temper/internal/run/record"
	"temper/internal/run/runtest"
)

// TestEntropiesStandBesideTheIndex: those that the trainer has recorded are in the rows and
// in the columns, the others are not recorded, and damage takes nothing else away.
func TestEntropiesStandBesideTheIndex(t *testing.T) {
	h := runtest.New(t, map[string]string{"tracker.token_stats": "1"})
	h.Whole(t, 1, false)
	r, err := history.Open(t.Context(), h.Store, "demo")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Store.Delete(t.Context(), h.Layout.Step(1).Entropies()); err != nil { // the run's own
		t.Fatal(err)
	}
	o := history.RolloutsOf(r)
	plain, ok, err := o.Index(t.Context(), 1)
	if err != nil || !ok || len(plain) < 2 {
		t.Fatalf("%d rows (%v)", len(plain), err)
	}
	before, _, err := o.IndexVersion(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	at := len(plain) - 1
	data, err := record.Entropies([]record.Row{{Problem: plain[at].Problem, Rollout: plain[at].Rollout, MeanEntropy: record.Finite(0.75), Reward: 7}})
	if err != nil {
		t.Fatal(err)
	}
	for name, stored := range map[string]string{"absent": "", "whole": string(data), "damaged": string(data[:len(data)-4])} {
		if stored != "" {
			runtest.Put(t, h.Store, h.Layout.Step(1).Entropies(), stored)
		}
		rows, _, err := o.Index(t.Context(), 1)
		if err != nil || len(rows) != len(plain) {
			t.Fatalf("%s: %d rows (%v)", name, len(rows), err)
		}
		columns, _, err := o.Columns(t.Context(), 1)
		if err != nil || columns.Num != len(plain) {
			t.Fatalf("%s: %d rows (%v)", name, columns.Num, err)
		}
		list, has := columns.Numbers("mean_entropy")
		for i := range rows {
			want := name == "whole" && i == at
			if (rows[i].MeanEntropy != nil) != want || want && (*rows[i].MeanEntropy != 0.75 || list[i] != 0.75) || rows[i].Reward != plain[i].Reward {
				t.Errorf("%s: row %d is %+v", name, i, rows[i])
			}
		}
		if has != (name == "whole") {
			t.Errorf("%s: the column is there: %v", name, has)
		}
		version, _, err := o.IndexVersion(t.Context(), 1)
		if err != nil || (version != before) != (stored != "") {
			t.Errorf("%s: version %s after %s (%v)", name, version, before, err)
		}
		if err := h.Store.Delete(t.Context(), h.Layout.Step(1).Entropies()); err != nil {
			t.Fatal(err)
		}
	}
}
