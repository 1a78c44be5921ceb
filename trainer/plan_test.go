package trainer

import (
	"testing"

	"temper/internal/rl"
)

// rowsOf makes rows of the given lengths, indexed in order.
func rowsOf(lengths ...int) []*row {
	var out []*row
	for i, n := range lengths {
		out = append(out, &row{index: i, length: n, lossTokens: 1, sample: &rl.Sample{}})
	}
	return out
}

func TestMicrobatchesHoldEachRowOnce(t *testing.T) {
	draw := rl.Rand(5)
	for range 300 {
		var lengths []int
		for range 1 + draw.IntN(70) {
			lengths = append(lengths, 1+draw.IntN(223))
		}
		tokens := 1 + draw.IntN(5000)
		seen := map[int]bool{}
		for _, mb := range microbatches(rowsOf(lengths...), tokens) {
			if mb.rows*mb.length > tokens && mb.rows > 1 {
				t.Fatalf("%d rows of %d tokens exceed %d", mb.rows, mb.length, tokens)
			}
			if len(mb.members) > mb.rows || len(mb.members) == 0 {
				t.Fatalf("%d rows for %d members", mb.rows, len(mb.members))
			}
			for _, r := range mb.members {
				if seen[r.index] || r.length > mb.length {
					t.Fatalf("row %d of %d tokens: seen %v, padded to %d", r.index, r.length, seen[r.index], mb.length)
				}
				seen[r.index] = true
			}
		}
		if len(seen) != len(lengths) {
			t.Fatalf("%d of %d rows are in a microbatch", len(seen), len(lengths))
		}
	}
}

func TestMicrobatchesWasteLittle(t *testing.T) {
	draw := rl.Rand(6)
	real, padded := 0, 0
	for range 50 {
		var lengths []int
		for range 64 {
			lengths = append(lengths, 67+draw.IntN(67))
		}
		for _, mb := range microbatches(rowsOf(lengths...), 2048) {
			padded += mb.rows * mb.length
			for _, r := range mb.members {
				real += r.length
			}
		}
	}
	if share := float64(real) / float64(padded); share < 0.9 {
		t.Errorf("%.3f of the tokens passed through the network are real, want 0.9", share)
	}
}

func TestBuckets(t *testing.T) {
	for n, want := range map[int]int{1: 16, 16: 16, 17: 32, 100: 112, 256: 256, 257: 288, 600: 640, 1025: 1152} {
		if got := bucketLength(n); got != want {
			t.Errorf("bucketLength(%d) = %d, want %d", n, got, want)
		}
	}
	want := []int{1, 2, 3, 5, 7, 11, 15, 23, 31, 47, 63}
	for i, n := range want[:len(want)-1] {
		if got := nextRows(n); got != want[i+1] {
			t.Errorf("nextRows(%d) = %d, want %d", n, got, want[i+1])
		}
	}
}

func TestMinibatchesDealEachRowOnce(t *testing.T) {
	rows := rowsOf(make([]int, 50)...)
	parts := minibatches(rows, 4, 9, 3)
	seen := map[int]bool{}
	for _, part := range parts {
		if len(part) < 12 || len(part) > 13 {
			t.Errorf("a part of %d rows, want 12 or 13", len(part))
		}
		for _, r := range part {
			seen[r.index] = true
		}
	}
	if len(parts) != 4 || len(seen) != 50 {
		t.Errorf("%d parts with %d rows, want 4 with 50", len(parts), len(seen))
	}
	first := func(p [][]*row) (order []int) {
		for _, r := range p[0] {
			order = append(order, r.index)
		}
		return order
	}
	a, same, other := first(parts), first(minibatches(rows, 4, 9, 3)), first(minibatches(rows, 4, 9, 4))
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
	if few := minibatches(rows[:2], 4, 9, 3); len(few) != 2 {
		t.Errorf("%d parts of 2 rows, want 2", len(few))
	}
}
