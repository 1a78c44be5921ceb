package runclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
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

func TestFollowOutlivesAnOutageOfTheStore(t *testing.T) {
	left := 3
	var lines strings.Builder
	store := outage{memblob.New(), &left, blob.ErrUnavailable}
	f := newFollower(store, "r", &lines)
	if err := f.last(t.Context()); err != nil || left > 0 {
		t.Errorf("last gave %v with %d failures left", err, left)
	}
	if got := strings.Count(lines.String(), "waiting for the store"); got != 1 {
		t.Errorf("the outage was told %d times:\n%s", got, lines.String())
	}
	left, store.err = 1, blob.ErrMisconfigured
	if err := newFollower(store, "r", &lines).until(t.Context()); !errors.Is(err, blob.ErrMisconfigured) {
		t.Error("a store that refuses is waited for")
	}
}
