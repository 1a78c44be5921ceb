package run_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
)

// gets counts what is read of the records of steps.
type gets struct {
	blob.Store
	records atomic.Int64
}

func (g *gets) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if strings.HasSuffix(key, "/step.json") {
		g.records.Add(1)
	}
	return g.Store.Get(ctx, key)
}

// TestRecordsComeInBlocks: the records of a long run are those that its steps have
// written, whether or not their blocks are there, whole or damaged.
func TestRecordsComeInBlocks(t *testing.T) {
	const steps = 2*artifact.SeriesSteps + 7
	h := runtest.New(t, map[string]string{"stages[0].until.steps": "150"})
	for n := 1; n <= steps; n++ {
		in := stepNumbers(h, n)
		in.NumSteps = 150
		if _, err := run.LogStep(t.Context(), h.Store, h.Config, in); err != nil {
			t.Fatal(err)
		}
	}
	read := func() ([]run.StepRecord, int64) {
		t.Helper()
		g := &gets{Store: h.Store}
		out, err := run.Records(t.Context(), g, h.Plan)
		if err != nil {
			t.Fatal(err)
		}
		return out, g.records.Load()
	}
	blocks, few := read()
	if len(blocks) != steps || few != 7 {
		t.Fatalf("%d records, of which %d were read one by one", len(blocks), few)
	}
	runtest.Put(t, h.Store, h.Layout.Series(1), `{"step": 900}`)
	if err := h.Store.Delete(t.Context(), h.Layout.Series(2)); err != nil {
		t.Fatal(err)
	}
	single, all := read()
	if diff := cmp.Diff(single, blocks); diff != "" || all != steps {
		t.Errorf("%d were read one by one; want -, got +\n%s", all, diff)
	}
}
