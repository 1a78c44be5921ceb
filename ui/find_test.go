package ui_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/ui"
)

// indexReads counts how often indexes of steps are read.
type indexReads struct {
	blob.Store
	num atomic.Int64
}

func (c *indexReads) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if strings.HasSuffix(key, "/index.zst") {
		c.num.Add(1)
	}
	return c.Store.Get(ctx, key)
}

// TestFilterReadsIndexesOnce: the answer to a filter that was asked before needs no index,
// however rare the rows are.
func TestFilterReadsIndexesOnce(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 4, false)
	store := &indexReads{Store: h.Store}
	s := newSite(t, store, nil)
	const path = "/runs/demo/find?filter=reward=1"
	first := read[ui.FindView](t, s, path)
	if first.Unread > 0 || len(first.First) == 0 || store.num.Load() == 0 {
		t.Fatalf("%+v after %d indexes", first, store.num.Load())
	}
	before := store.num.Load()
	again := read[ui.FindView](t, s, path)
	if diff := cmp.Diff(first, again); diff != "" || store.num.Load() != before {
		t.Errorf("asked again, it reads %d indexes, and was -, is +\n%s", store.num.Load()-before, diff)
	}
}

// TestFilterOfADamagedCatalog: a step of the catalog that no plan has makes no table.
func TestFilterOfADamagedCatalog(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 2, false)
	if _, err := blob.PutJSON(t.Context(), h.Store, h.Layout.Catalog(), run.CatalogEntry{RunID: "demo", Step: 1 << 40}, blob.Always); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, h.Store, nil)
	if got := read[ui.FindView](t, s, "/runs/demo/find?filter=reward=1"); len(got.Steps) != 2 || got.Missing > 0 {
		t.Errorf("%d steps, %d missing, want those of the run", len(got.Steps), got.Missing)
	}
}

// TestTimelineLinks: each span leads to the workflow that decided on it, where Temporal's
// page is known.
func TestTimelineLinks(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 6, true)
	for address, want := range map[string]map[string]string{
		"": {"stage": "", "sft": ""},
		"127.0.0.1:8233": {
			"stage": "http://127.0.0.1:8233/namespaces/my%20runs/workflows/rl%2Fdemo%2Fstage-0", "sft": "http://127.0.0.1:8233/namespaces/my%20runs/workflows/rl%2Fdemo",
		},
	} {
		s := newSite(t, h.Store, func(c *ui.Config) { c.TemporalUI, c.Namespace = address, "my runs" })
		for _, span := range read[ui.TimelineView](t, s, "/runs/demo/timeline").Spans {
			if begin, known := want[span.Kind]; known && (!strings.HasPrefix(span.Link, begin) || begin == "" && span.Link != "") {
				t.Errorf("%s %s links to %q, want %q", span.Kind, span.Name, span.Link, begin)
			}
		}
	}
}
