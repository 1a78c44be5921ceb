package budget_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"temper/sandbox/budget"
)

// TestNoCallerHoldsMoreThanHalf: others find room at once, and who has too much waits
// for its own.
func TestNoCallerHoldsMoreThanHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := budget.NewAccount(100)
		if err := a.TryAcquire("a", 51); !errors.Is(err, budget.ErrTooMuch) {
			t.Errorf("more than half at once: %v", err)
		}
		for caller, want := range map[string]error{"a": nil, "b": nil} {
			if err := a.TryAcquire(caller, 40); !errors.Is(err, want) {
				t.Errorf("%s: %v", caller, err)
			}
		}
		if err := a.TryAcquire("a", 11); !errors.Is(err, budget.ErrFull) {
			t.Errorf("above half of one caller: %v", err)
		}
		if err := a.TryAcquire("c", 21); !errors.Is(err, budget.ErrFull) {
			t.Errorf("above all: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Acquire(ctx, "a", 11); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waits for nothing: %v", err)
		}
		waited := make(chan error, 1)
		go func() { waited <- a.Acquire(t.Context(), "a", 50) }()
		synctest.Wait()
		a.Release("a", 40)
		if err := <-waited; err != nil || a.Held() != 90 {
			t.Errorf("after its own were given back: %v, %d held", err, a.Held())
		}
	})
}

func TestSharesOfABudget(t *testing.T) {
	b := budget.New(1 << 30)
	if sum := b.Bodies.Most() + b.Answers.Most() + b.Repeats + b.Cells; sum != b.Total || sum != 1<<30 {
		t.Errorf("the shares are %d of %d", sum, b.Total)
	}
	if own := budget.New(0).Total; own < 256<<20 || own > 2<<30 {
		t.Errorf("a budget that nobody chose is %d", own)
	}
}
