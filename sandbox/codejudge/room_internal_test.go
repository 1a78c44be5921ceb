package codejudge

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestNoCallerHoldsMoreThanHalf: others find room at once, and who has too much waits
// for its own.
func TestNoCallerHoldsMoreThanHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(10, 100)
		take := func(caller string, a amount) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return r.take(ctx, caller, a)
		}
		if err := take("a", amount{calls: 6}); !errors.Is(err, errTooMuch) {
			t.Errorf("six of ten: %v, want %v", err, errTooMuch)
		}
		for _, a := range []amount{{calls: 5}, {bytes: 50}} {
			if err := take("a", a); err != nil {
				t.Fatalf("half of all: %v", err)
			}
		}
		for _, a := range []amount{{calls: 1}, {bytes: 1}} {
			if err := take("a", a); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("more than half: %v, want to wait", err)
			}
			if err := take("b", a); err != nil {
				t.Errorf("another caller: %v", err)
			}
		}
		waited := make(chan error, 1)
		go func() { waited <- take("a", amount{calls: 2}) }()
		synctest.Wait()
		r.give("a", amount{calls: 5})
		if err := <-waited; err != nil {
			t.Errorf("after its own were given back: %v", err)
		}
	})
}
