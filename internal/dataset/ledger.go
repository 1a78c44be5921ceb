package dataset

import (
	"fmt"

	"temper/internal/rl"
)

// Ledger hands out problems step by step: each exactly once per epoch, in an
// order shuffled again for each epoch, and never twice in one step. It has no state
// but its inputs, so that any step can be asked for at any time.
type Ledger struct {
	seed     uint64
	problems []rl.Problem
	perStep  int
}

// NewLedger returns the ledger of a stage over problems without the removed ids.
// The seed must belong to the stage alone.
func NewLedger(seed uint64, problems []rl.Problem, perStep int, removed map[string]bool) (*Ledger, error) {
	l := &Ledger{seed: seed, perStep: perStep}
	seen := map[string]bool{}
	for _, p := range problems {
		if seen[p.ID] {
			return nil, fmt.Errorf("ledger: problem %s is given twice", p.ID)
		}
		seen[p.ID] = true
		if !removed[p.ID] {
			l.problems = append(l.problems, p)
		}
	}
	if perStep < 1 || len(l.problems) < perStep {
		return nil, fmt.Errorf("ledger: %d problems are left of %d, problems_per_step is %d", len(l.problems), len(problems), perStep)
	}
	return l, nil
}

// Len is the number of problems of an epoch.
func (l *Ledger) Len() int { return len(l.problems) }

// Epoch returns the epoch in which the step begins, counted from 0.
func (l *Ledger) Epoch(step int) int { return step * l.perStep / len(l.problems) }

// Step returns the problems of a step, counted from 0 within the stage.
func (l *Ledger) Step(step int) []rl.Problem {
	n, from := len(l.problems), step*l.perStep
	first := from / n
	order := l.order(first)
	var next []int
	out := make([]rl.Problem, l.perStep)
	for i := range out {
		at := from + i
		if at/n == first {
			out[i] = l.problems[order[at%n]]
			continue
		}
		if next == nil {
			next = l.follow(order, first+1)
		}
		out[i] = l.problems[next[at%n]]
	}
	return out
}

// order is the order of an epoch. Each one depends on the end of the one before.
func (l *Ledger) order(epoch int) []int {
	order := l.shuffled(0)
	for e := 1; e <= epoch; e++ {
		order = l.follow(order, e)
	}
	return order
}

func (l *Ledger) shuffled(epoch int) []int {
	return rl.Rand(rl.Seed(l.seed, "ledger", uint64(epoch))).Perm(len(l.problems))
}

// follow is the order of an epoch after the given one. When a step spans both
// epochs, the problems that it already has are moved back in the new order.
func (l *Ledger) follow(before []int, epoch int) []int {
	n := len(l.problems)
	order := l.shuffled(epoch)
	tail := epoch * n % l.perStep // problems that the step spanning both takes from the epoch before
	if tail == 0 {
		return order
	}
	used := map[int]bool{}
	for _, p := range before[n-tail:] {
		used[p] = true
	}
	head, spare := l.perStep-tail, l.perStep-tail
	for i := range head {
		if !used[order[i]] {
			continue
		}
		for used[order[spare]] {
			spare++
		}
		order[i], order[spare] = order[spare], order[i]
		spare++
	}
	return order
}
