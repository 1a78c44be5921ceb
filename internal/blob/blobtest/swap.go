package blobtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"temper/internal/blob"
)

const (
	racers = 16
	rounds = 12
)

func swap(t *testing.T, s blob.Store) {
	ctx := t.Context()
	if _, err := s.Swap(ctx, "k", blob.RefOf("k", []byte("ghost")), []byte("x")); !errors.Is(err, blob.ErrConflict) {
		t.Errorf("Swap of an absent key gave %v, want ErrConflict", err)
	}
	wantKeys(t, s, "")
	first, err := s.Swap(ctx, "k", blob.Ref{}, []byte("first"))
	if err != nil {
		t.Fatal(err)
	}
	if want := blob.RefOf("k", []byte("first")); first != want {
		t.Errorf("Swap returned %+v, want %+v", first, want)
	}
	for name, old := range map[string]blob.Ref{"absent": {}, "other bytes": blob.RefOf("k", []byte("other"))} {
		if _, err := s.Swap(ctx, "k", old, []byte("wrong")); !errors.Is(err, blob.ErrConflict) {
			t.Errorf("Swap with old = %s gave %v, want ErrConflict", name, err)
		}
	}
	want(t, s, "k", "first")
	second, err := s.Swap(ctx, "k", first, []byte("second"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Swap(ctx, "k", first, []byte("third")); !errors.Is(err, blob.ErrConflict) {
		t.Errorf("Swap with a stale reference gave %v, want ErrConflict", err)
	}
	want(t, s, "k", "second")
	if _, err := s.Swap(ctx, "other", second, []byte("x")); err == nil || errors.Is(err, blob.ErrConflict) {
		t.Errorf("Swap with the reference of another key gave %v, want a complaint about it", err)
	}
	if _, err := s.Swap(ctx, "a//b", blob.Ref{}, []byte("x")); err == nil || errors.Is(err, blob.ErrConflict) {
		t.Errorf("Swap of a bad key gave %v, want a complaint about it", err)
	}
	wantKeys(t, s, "", "k")
}

func concurrentSwap(t *testing.T, s blob.Store) {
	wins, err := RaceSwaps(t.Context(), s, "head", racers, rounds)
	if err != nil {
		t.Fatal(err)
	}
	if wins != rounds {
		t.Errorf("%d swaps won in %d rounds, want one in each", wins, rounds)
	}
}

// RaceSwaps has writers swap the key against the same old blob in each round and
// returns how many won in all. A round with no winner, with two, with a winner
// whose bytes are not there, or with a loser that got anything but ErrConflict
// is the error.
func RaceSwaps(ctx context.Context, s blob.Store, key string, writers, rounds int) (wins int, err error) {
	var old blob.Ref
	for round := range rounds {
		refs, errs := make([]blob.Ref, writers), make([]error, writers)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				refs[w], errs[w] = s.Swap(ctx, key, old, fmt.Appendf(nil, "round %d writer %d", round, w))
			})
		}
		wg.Wait()
		var won []int
		for w, err := range errs {
			if err == nil {
				won = append(won, w)
			} else if !errors.Is(err, blob.ErrConflict) {
				return wins, fmt.Errorf("round %d: writer %d: %w", round, w, err)
			}
		}
		if len(won) != 1 {
			return wins, fmt.Errorf("round %d: writers %v won, want exactly one", round, won)
		}
		old = refs[won[0]]
		if _, err := blob.ReadRef(ctx, s, old); err != nil {
			return wins, fmt.Errorf("round %d: what the winner wrote: %w", round, err)
		}
		wins++
	}
	return wins, nil
}

func countingSwap(t *testing.T, s blob.Store) {
	const writers, each = 4, 6
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			if err := CountSwaps(t.Context(), s, "count", each); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	want(t, s, "count", strconv.Itoa(writers*each))
}

// CountSwaps adds one to the number under key, n times, each by reading it and
// swapping it for the next until no other writer was faster.
func CountSwaps(ctx context.Context, s blob.Store, key string, n int) error {
	for added := 0; added < n; {
		data, err := blob.ReadKey(ctx, s, key)
		if err != nil && !errors.Is(err, blob.ErrNotExist) {
			return err
		}
		var old blob.Ref
		count := 0
		if err == nil {
			old = blob.RefOf(key, data)
			if count, err = strconv.Atoi(string(data)); err != nil {
				return err
			}
		}
		_, err = s.Swap(ctx, key, old, []byte(strconv.Itoa(count+1)))
		switch {
		case err == nil:
			added++
		case !errors.Is(err, blob.ErrConflict):
			return err
		}
	}
	return nil
}
