package export_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"temper/internal/blob"
	"temper/internal/export"
	"temper/internal/history"
	"temper/internal/run/runtest"
)

// outage is a store whose server is away for some calls.
type outage struct {
	blob.Store
	left *int
	err  error
}

func (o outage) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if *o.left--; *o.left >= 0 {
		return nil, fmt.Errorf("get: %w", o.err)
	}
	return o.Store.Get(ctx, key)
}

// TestExportThatFails leaves the file of the export before it.
func TestExportThatFails(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 2, false)
	left := 0
	r, err := history.Open(t.Context(), outage{h.Store, &left, blob.ErrUnavailable}, "demo")
	if err != nil {
		t.Fatal(err)
	}
	o := export.Options{Format: "parquet", Out: filepath.Join(t.TempDir(), "rollouts.parquet"), First: 1, Last: 2}
	if _, err := export.Write(t.Context(), r, o); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	left = 1000
	if _, err := export.Write(t.Context(), r, o); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("error %v, want that of the store", err)
	}
	after, err := os.ReadFile(o.Out)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("%d bytes of %d are left (%v)", len(after), len(before), err)
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(o.Out), "*")); len(files) != 1 {
		t.Errorf("the folder has %q", files)
	}
}
