package codejudge

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// TestCallersTakeTurns: a caller with many calls in line does not stand before others,
// and its own keep their order, also when one of them is given up.
func TestCallersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		l.limit, l.slow = 1, true
		hold := l.ticket("x")
		if err := l.enter(t.Context(), hold); err != nil {
			t.Fatal(err)
		}
		served := make(chan string, 16)
		queue := func(ctx context.Context, caller, name string) {
			p := l.ticket(caller)
			go func() {
				if l.enter(ctx, p) == nil {
					served <- name
					l.leave(false)
				}
			}()
			synctest.Wait()
		}
		withdrawn, withdraw := context.WithCancel(t.Context())
		queue(t.Context(), "a", "a1")
		queue(t.Context(), "a", "a2")
		queue(withdrawn, "a", "a3")
		queue(t.Context(), "b", "b1")
		withdraw()
		synctest.Wait()
		queue(t.Context(), "a", "a4")
		queue(t.Context(), "b", "b2")
		queue(t.Context(), "c", "c1")
		l.leave(false)
		synctest.Wait()
		close(served)
		var got []string
		for name := range served {
			got = append(got, name)
		}
		if diff := cmp.Diff(got, []string{"a1", "b1", "c1", "a2", "b2", "a4"}); diff != "" {
			t.Errorf("order (-got +want):\n%s", diff)
		}
		if len(l.last) != 0 {
			t.Errorf("the line remembers %v", l.last)
		}
	})
}
