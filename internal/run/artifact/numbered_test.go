package artifact_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/run/artifact"
)

// statCounter counts what is asked for.
type statCounter struct {
	blob.Store
	stats *atomic.Int32
}

func (s statCounter) Stat(ctx context.Context, key string) (blob.Info, error) {
	s.stats.Add(1)
	return s.Store.Stat(ctx, key)
}

func number(n int) string { return fmt.Sprintf("n/%06d", n) }

// TestNewestFindsTheLastNumber wherever it is, with few requests.
func TestNewestFindsTheLastNumber(t *testing.T) {
	store := memblob.New()
	for made := 0; made <= 70; made++ {
		if made > 0 {
			if _, err := blob.PutJSON(t.Context(), store, number(made+9), made, blob.Always); err != nil {
				t.Fatal(err)
			}
		}
		var stats atomic.Int32
		got, ok, err := artifact.Newest(t.Context(), statCounter{store, &stats}, 10, 79, number)
		if err != nil || ok != (made > 0) || ok && got != made+9 || stats.Load() > 24 {
			t.Fatalf("of %d: got %d, %v (%v) with %d requests", made, got, ok, err, stats.Load())
		}
	}
	if _, ok, err := artifact.Newest(t.Context(), store, 10, 9, number); ok || err != nil {
		t.Errorf("of no number: %v (%v)", ok, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := artifact.Newest(ended, store, 10, 79, number); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled search gave %v", err)
	}
}

func TestGatherKeepsTheOrder(t *testing.T) {
	store := memblob.New()
	var keys []string
	var want []int
	for n := range 200 {
		keys, want = append(keys, number(n)), append(want, n)
		if _, err := blob.PutJSON(t.Context(), store, number(n), n, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	got, err := artifact.Gather[int](t.Context(), store, keys)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("gathered (%v), want -, got +\n%s", err, diff)
	}
	if _, err := artifact.Gather[int](t.Context(), store, append(keys, "none")); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("a missing key gave %v", err)
	}
}
