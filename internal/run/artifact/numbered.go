package artifact

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
)

const (
	// parallel is how many requests that do not wait for one another are made at once.
	parallel = 64
	// probes is how many numbers one round of Newest asks for.
	probes = 8
)

// Each calls do with 0 to n-1, many at a time, and returns the first error. It is for
// calls that make a request or two.
func Each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	return EachOf(ctx, n, parallel, do)
}

// EachOf is Each with a stated number of calls at a time, for calls that make many
// requests.
func EachOf(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) error {
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := 0; i < n && groupCtx.Err() == nil; i++ {
		g.Go(func() error { return do(groupCtx, i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// Gather reads the JSON under each key, in the order of the keys. Errors: those of
// Lookup; blob.ErrNotExist.
func Gather[T any](ctx context.Context, s blob.Store, keys []string) ([]T, error) {
	out := make([]T, len(keys))
	return out, Each(ctx, len(keys), func(ctx context.Context, i int) error {
		return readJSON(ctx, s, keys[i], &out[i])
	})
}

// Newest finds the last of the numbers from first to last whose key is there; ok
// is false when none is. The keys must have been made in the order of their
// numbers. It lists nothing: some three rounds of requests find one of 500.
func Newest(ctx context.Context, s blob.Store, first, last int, key func(n int) string) (newest int, ok bool, err error) {
	there, absent := first-1, last+1
	for absent-there > 1 {
		numbers := between(there, absent)
		found := make([]bool, len(numbers))
		err := Each(ctx, len(numbers), func(ctx context.Context, i int) error {
			_, err := s.Stat(ctx, key(numbers[i]))
			if found[i] = err == nil; errors.Is(err, blob.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			return 0, false, err
		}
		for i, n := range numbers {
			if found[i] {
				there = max(there, n)
			}
		}
		for i, n := range numbers {
			if !found[i] && n > there {
				absent = min(absent, n)
			}
		}
	}
	return there, there >= first, nil
}

// between chooses numbers within the limits, in order: the first, and others at equal
// distances.
func between(there, absent int) []int {
	numbers := []int{there + 1}
	width := absent - there - 1
	for i := 1; i < probes; i++ {
		if n := there + 1 + width*i/probes; n > numbers[len(numbers)-1] {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
