package budget_test

import (
	"testing"

	"temper/sandbox/budget"
)

func TestCheck(t *testing.T) {
	for total, ok := range map[int64]bool{0: true, budget.Smallest: true, budget.Smallest - 1: false, 1: false, -1: false} {
		if err := budget.Check(total); (err == nil) != ok {
			t.Errorf("%d: %v", total, err)
		}
	}
}
