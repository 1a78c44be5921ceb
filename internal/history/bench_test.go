package history_test

import (
	"fmt"
	"testing"

	"temper/internal/blob/memblob"
	"temper/internal/history"
	"temper/internal/run/artifact"
)

// BenchmarkListOfRuns lists 200 runs of 510 steps on a store that is 50 ms away: with
// the catalog, and as it is for runs of programs that had none.
func BenchmarkListOfRuns(b *testing.B) {
	store := memblob.New()
	for i := range 200 {
		paperRun(b, store, fmt.Sprintf("r%03d", i), 0)
	}
	list := func(b *testing.B) {
		d := &distant{Store: store, away: away}
		for b.Loop() {
			if entries, err := history.List(b.Context(), d); err != nil || len(entries) != 200 {
				b.Fatalf("%d entries (%v)", len(entries), err)
			}
		}
		b.ReportMetric(float64(d.requests)/float64(b.N), "requests/op")
	}
	b.Run("catalog", list)
	for i := range 200 {
		if err := store.Delete(b.Context(), artifact.Layout{RunID: fmt.Sprintf("r%03d", i)}.Catalog()); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("folders", list)
}

// BenchmarkRecords reads the 509 records of one run.
func BenchmarkRecords(b *testing.B) {
	store := memblob.New()
	paperRun(b, store, "r", 8)
	d := &distant{Store: store, away: away}
	for b.Loop() {
		r, err := history.Open(b.Context(), d, "r")
		if err != nil {
			b.Fatal(err)
		}
		if records, err := r.Records(b.Context()); err != nil || len(records) != 509 {
			b.Fatalf("%d records (%v)", len(records), err)
		}
	}
	b.ReportMetric(float64(d.requests)/float64(b.N), "requests/op")
}
