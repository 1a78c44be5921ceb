package packing_test

import (
	"slices"
	"testing"

	"temper/internal/rl"
	"temper/trainer/packing"
)

// rowsOf makes rows of the given lengths, indexed in order.
func rowsOf(lengths ...int) []*packing.Row {
	var out []*packing.Row
	for i, n := range lengths {
		out = append(out, &packing.Row{Index: i, Length: n, LossTokens: 1, Sample: &rl.Sample{}})
	}
	return out
}

// lengths draws n lengths of from to to-1 tokens.
func lengths(draw interface{ IntN(int) int }, n, from, to int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = from + draw.IntN(to-from)
	}
	return out
}

func TestMicrobatchesHoldEachRowOnce(t *testing.T) {
	draw := rl.Rand(5)
	for range 300 {
		all := lengths(draw, 1+draw.IntN(70), 1, 224)
		tokens := 1 + draw.IntN(5000)
		seen := map[int]bool{}
		for _, mb := range (packing.Plan{Tokens: tokens}).Microbatches(rowsOf(all...)) {
			if mb.Rows*mb.Length > tokens && mb.Rows > 1 || mb.Packed {
				t.Fatalf("%d rows of %d tokens exceed %d, or are packed", mb.Rows, mb.Length, tokens)
			}
			if len(mb.Members) > mb.Rows || len(mb.Members) == 0 {
				t.Fatalf("%d rows for %d members", mb.Rows, len(mb.Members))
			}
			for _, r := range mb.Members {
				if seen[r.Index] || r.Length > mb.Length {
					t.Fatalf("row %d of %d tokens: seen %v, padded to %d", r.Index, r.Length, seen[r.Index], mb.Length)
				}
				seen[r.Index] = true
			}
		}
		if len(seen) != len(all) {
			t.Fatalf("%d of %d rows are in a microbatch", len(seen), len(all))
		}
	}
}

// TestPackedRowsHoldEachSampleOnce: whatever the lengths, samples stand apart
// within rows, on the grid.
func TestPackedRowsHoldEachSampleOnce(t *testing.T) {
	draw := rl.Rand(9)
	for range 300 {
		all := lengths(draw, 1+draw.IntN(70), 1, 401)
		tokens := 1 + draw.IntN(9000)
		seen := map[int]bool{}
		for _, mb := range (packing.Plan{Tokens: tokens, Pack: true}).Microbatches(rowsOf(all...)) {
			if mb.Rows*mb.Length > tokens && mb.Rows > 1 || !mb.Packed {
				t.Fatalf("%d rows of %d tokens exceed %d, or are not packed", mb.Rows, mb.Length, tokens)
			}
			taken := make([]bool, mb.Rows*mb.Length)
			for i, r := range mb.Members {
				start := mb.Starts[i]
				if seen[r.Index] || start%packing.Align != 0 || start%mb.Length+r.Length > mb.Length {
					t.Fatalf("sample %d of %d tokens starts at %d of rows of %d, seen %v", r.Index, r.Length, start, mb.Length, seen[r.Index])
				}
				seen[r.Index] = true
				if slices.Contains(taken[start:start+r.Length], true) {
					t.Fatalf("sample %d overlaps another", r.Index)
				}
				for p := range r.Length {
					taken[start+p] = true
				}
			}
		}
		if len(seen) != len(all) {
			t.Fatalf("%d of %d samples are in a microbatch", len(seen), len(all))
		}
	}
}

func TestMicrobatchesWasteLittle(t *testing.T) {
	for name, c := range map[string]struct {
		plan     packing.Plan
		from, to int
	}{
		"padded": {packing.Plan{Tokens: 2048}, 67, 134},
		"packed": {packing.Plan{Tokens: 16384, Pack: true}, 30, 2000}, // lengths differ much more than in one bucket
	} {
		draw := rl.Rand(6)
		real, padded := 0, 0
		for range 50 {
			for _, mb := range c.plan.Microbatches(rowsOf(lengths(draw, 64, c.from, c.to)...)) {
				padded += mb.Rows * mb.Length
				for _, r := range mb.Members {
					real += r.Length
				}
			}
		}
		if share := float64(real) / float64(padded); share < 0.9 {
			t.Errorf("%s: %.3f of the tokens passed through the network are real, want 0.9", name, share)
		}
	}
}

// TestShapesAreFew: lengths come from buckets, and numbers of rows from a series
// that is odd past 2.
func TestShapesAreFew(t *testing.T) {
	plan := packing.Plan{Tokens: 1 << 14}
	for n, want := range map[int]int{1: 16, 16: 16, 17: 32, 100: 112, 256: 256, 257: 288, 600: 640, 1025: 1152} {
		if got := plan.Microbatches(rowsOf(n))[0].Length; got != want {
			t.Errorf("%d tokens are padded to %d, want %d", n, got, want)
		}
	}
	numbers := []int{1, 2, 3, 5, 7, 11, 15, 23, 31, 47, 63}
	for n := 1; n <= 63; n++ {
		for _, mb := range plan.Microbatches(rowsOf(slices.Repeat([]int{20}, n)...)) {
			if !slices.Contains(numbers, mb.Rows) {
				t.Errorf("%d equal samples: a pass of %d rows, want one of %v", n, mb.Rows, numbers)
			}
		}
		if slices.Contains(numbers, n) {
			if got := plan.Microbatches(rowsOf(slices.Repeat([]int{20}, n)...)); len(got) != 1 || got[0].Rows != n {
				t.Errorf("%d equal samples make %d passes, want one", n, len(got))
			}
		}
	}
}

func TestRowsAreMultiplesOfTheDataAxis(t *testing.T) {
	plan := packing.Plan{Tokens: 256, RowsMultiple: 4}
	for _, mb := range plan.Microbatches(rowsOf(9, 20, 31, 64, 65, 80, 90)) {
		if mb.Rows%4 != 0 {
			t.Errorf("a pass of %d rows", mb.Rows)
		}
	}
}

func TestMinibatchesDealEachRowOnce(t *testing.T) {
	rows := rowsOf(make([]int, 50)...)
	parts := packing.Minibatches(rows, 4, 9, 3)
	seen := map[int]bool{}
	for _, part := range parts {
		if len(part) < 12 || len(part) > 13 {
			t.Errorf("a part of %d rows, want 12 or 13", len(part))
		}
		for _, r := range part {
			seen[r.Index] = true
		}
	}
	if len(parts) != 4 || len(seen) != 50 {
		t.Errorf("%d parts with %d rows, want 4 with 50", len(parts), len(seen))
	}
	first := func(p [][]*packing.Row) (order []int) {
		for _, r := range p[0] {
			order = append(order, r.Index)
		}
		return order
	}
	a, same, other := first(parts), first(packing.Minibatches(rows, 4, 9, 3)), first(packing.Minibatches(rows, 4, 9, 4))
	differs := false
	for i := range min(len(a), len(other)) {
		if a[i] != same[i] {
			t.Fatal("the order is not a function of seed and step")
		}
		differs = differs || a[i] != other[i]
	}
	if !differs {
		t.Error("two steps have one order")
	}
	if few := packing.Minibatches(rows[:2], 4, 9, 3); len(few) != 2 {
		t.Errorf("%d parts of 2 rows, want 2", len(few))
	}
}
