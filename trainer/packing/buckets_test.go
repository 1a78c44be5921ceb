package packing_test

import (
	"math"
	"slices"
	"testing"

	"temper/internal/rl"
	"temper/trainer/packing"
)

func rowsOfLengths(lengths ...int) []*packing.Row {
	out := make([]*packing.Row, len(lengths))
	for i, n := range lengths {
		out[i] = &packing.Row{Index: i, Length: n, LossTokens: 1}
	}
	return out
}

func drawLengths(n, most int, seed uint64) []int {
	r := rl.Rand(seed)
	out := make([]int, n)
	for i := range out {
		out[i] = 1 + r.IntN(most)
	}
	return out
}

// checkPlaces: each row stands once, in a row long enough, and none on top of another.
func checkPlaces(t *testing.T, rows []*packing.Row, micros []packing.Microbatch, packed bool) {
	t.Helper()
	var seen []int
	for _, mb := range micros {
		taken := make([]bool, mb.Tokens())
		for i, r := range mb.Members {
			seen = append(seen, r.Index)
			at := mb.Starts[i]
			if at%mb.Length+r.Length > mb.Length {
				t.Errorf("a row of %d tokens begins at %d of %d", r.Length, at%mb.Length, mb.Length)
			}
			if !packed && at%mb.Length != 0 {
				t.Errorf("a row begins at %d without packing", at)
			}
			for k := range r.Length {
				if taken[at+k] {
					t.Fatalf("two rows at token %d", at+k)
				}
				taken[at+k] = true
			}
		}
	}
	slices.Sort(seen)
	for i, index := range seen {
		if index != i || len(seen) != len(rows) {
			t.Fatalf("rows %v of %d", seen, len(rows))
		}
	}
}

func TestBucketsAreTheShapesOfAllPasses(t *testing.T) {
	for _, packed := range []bool{false, true} {
		for seed := range uint64(20) {
			p := packing.Plan{Tokens: 512, Pack: packed, RowsMultiple: 2, Buckets: []packing.Shape{{Rows: 8, Length: 64}, {Rows: 2, Length: 128}, {Rows: 4, Length: 256}}}
			rows := rowsOfLengths(drawLengths(1+int(seed)*3, 256, seed)...)
			micros := p.Microbatches(rows)
			checkPlaces(t, rows, micros, packed)
			for _, mb := range micros {
				if !slices.Contains(p.Buckets, mb.Shape) || !mb.Fixed || mb.Packed != packed {
					t.Errorf("pass %+v", mb.Shape)
				}
			}
		}
	}
}

// TestBucketsTakeTheFewestTokens compares with all ways to cut a few rows.
func TestBucketsTakeTheFewestTokens(t *testing.T) {
	p := packing.Plan{Buckets: []packing.Shape{{Rows: 4, Length: 32}, {Rows: 1, Length: 64}, {Rows: 2, Length: 128}}}
	var least func(lengths []int) int
	least = func(lengths []int) int {
		if len(lengths) == 0 {
			return 0
		}
		best := math.MaxInt
		for _, b := range p.Buckets {
			if b.Length >= lengths[0] {
				best = min(best, b.Tokens()+64+least(lengths[min(b.Rows, len(lengths)):]))
			}
		}
		return best
	}
	for seed := range uint64(30) {
		lengths := drawLengths(7, 128, seed)
		got := 0
		for _, mb := range p.Microbatches(rowsOfLengths(lengths...)) {
			got += mb.Tokens() + 64
		}
		slices.SortFunc(lengths, func(a, b int) int { return b - a })
		if want := least(lengths); got != want {
			t.Errorf("%v: cost %d, want %d", lengths, got, want)
		}
	}
}

// TestRowsBeyondTheBuckets have a shape that depends on nothing but themselves.
func TestRowsBeyondTheBuckets(t *testing.T) {
	p := packing.Plan{RowsMultiple: 2, Buckets: []packing.Shape{{Rows: 2, Length: 64}}}
	rows := rowsOfLengths(300, 20, 65)
	micros := p.Microbatches(rows)
	checkPlaces(t, rows, micros, false)
	want := []packing.Shape{{Rows: 2, Length: 320}, {Rows: 2, Length: 64}}
	if len(micros) != 2 || micros[0].Shape != want[0] || micros[1].Shape != (packing.Shape{Rows: 2, Length: 64}) {
		for _, mb := range micros {
			t.Log(mb.Shape, len(mb.Members))
		}
		t.Errorf("%d passes, want %v", len(micros), want)
	}
	alone := micros[1].Alone(rows[1])
	if alone.Shape != micros[1].Shape || len(alone.Members) != 1 {
		t.Errorf("alone in %+v", alone.Shape)
	}
}

func TestChooseWithinTheBudget(t *testing.T) {
	p := packing.Plan{Tokens: 16384}
	f := packing.Forecast{MaxTokens: 14336, MeanTokens: 5000, Demands: []packing.Demand{
		{Kinds: 1, Batches: []packing.Batch{{Sequences: 128, Updates: 1000}}}, {Kinds: 1, Batches: []packing.Batch{{Sequences: 8192, Updates: 100}}},
	}}
	last := 1.0
	for _, most := range []int{4, 6, 8, 11} {
		got := p.Choose(f, packing.Budget{Max: most, Fixed: 2})
		if got.Graphs > most || got.Graphs != 2+len(got.Buckets[0])+len(got.Buckets[1]) {
			t.Errorf("%d graphs of %d, %v", got.Graphs, most, got.Buckets)
		}
		if got.Padding > last {
			t.Errorf("padding of %.3f with %d graphs, %.3f with fewer", got.Padding, most, last)
		}
		last = got.Padding
		for _, b := range slices.Concat(got.Buckets...) {
			if b.Rows > 1 && b.Tokens() > p.Tokens {
				t.Errorf("bucket %+v has more than %d tokens", b, p.Tokens)
			}
		}
		for _, set := range got.Buckets {
			if end := set[len(set)-1]; end.Length != 14336 {
				t.Errorf("longest bucket %+v", end)
			}
		}
		t.Logf("%d graphs: %v, padding %.3f", got.Graphs, got.Buckets, got.Padding)
		if again := p.Choose(f, packing.Budget{Max: most, Fixed: 2}); !slices.EqualFunc(again.Buckets, got.Buckets, slices.Equal) {
			t.Errorf("%v, and then %v", got.Buckets, again.Buckets)
		}
	}
	p.Pack = true
	if packed := p.Choose(f, packing.Budget{Max: 4, Fixed: 2}); packed.Padding > 0.15 {
		t.Errorf("packed: %v, padding %.3f", packed.Buckets, packed.Padding)
	}
}

// TestChoosePaysForGraphs: a graph that costs more than the padding which it saves is left
// out, and a budget below one shape is overdrawn.
func TestChoosePaysForGraphs(t *testing.T) {
	p := packing.Plan{Tokens: 4096}
	of := func(kinds int) packing.Forecast {
		return packing.Forecast{MaxTokens: 1024, Demands: []packing.Demand{{Kinds: kinds, Batches: []packing.Batch{{Sequences: 32, Updates: 10}}}}}
	}
	free := p.Choose(of(1), packing.Budget{Max: 20, Fixed: 2})
	dear := p.Choose(of(1), packing.Budget{Max: 20, Fixed: 2, Price: 1e9})
	if len(dear.Buckets[0]) != 1 || len(free.Buckets[0]) <= 1 {
		t.Errorf("%v where graphs are dear, %v where they are free", dear.Buckets, free.Buckets)
	}
	if got := p.Choose(of(4), packing.Budget{Max: 2, Fixed: 3}); len(got.Buckets[0]) != 1 || got.Graphs != 7 {
		t.Errorf("%d graphs, %v", got.Graphs, got.Buckets)
	}
}

// TestChooseFindsTheBestPair: the search finds what trying every pair finds.
func TestChooseFindsTheBestPair(t *testing.T) {
	p := packing.Plan{Tokens: 1024, RowsMultiple: 2}
	f := packing.Forecast{MaxTokens: 256, MeanTokens: 60, Demands: []packing.Demand{{Kinds: 1, Batches: []packing.Batch{{Sequences: 24, Updates: 1}}}}}
	got := p.Choose(f, packing.Budget{Max: 2})
	rows := rowsOfLengths(packing.Quantiles(256, 60, 24)...)
	cost := func(set ...packing.Shape) int {
		q := p
		q.Buckets = set
		n := 0
		for _, mb := range q.Microbatches(rows) {
			n += mb.Tokens() + 64
		}
		return n
	}
	best := math.MaxInt
	for length := 16; length <= 256; length += 16 {
		for n := 2; n <= 24; n += 2 {
			for top := 2; top <= 8; top += 2 {
				best = min(best, cost(packing.Shape{Rows: top, Length: 256}, packing.Shape{Rows: n, Length: length}))
			}
		}
	}
	if c := cost(got.Buckets[0]...); float64(c) > 1.02*float64(best) {
		t.Errorf("%v cost %d, the best pair %d", got.Buckets, c, best)
	}
}

// TestQuantilesHaveTheirMean within half a percent.
func TestQuantilesHaveTheirMean(t *testing.T) {
	for _, mean := range []int{500, 2000, 5000, 9000} {
		sum := 0
		lengths := packing.Quantiles(10000, mean, 400)
		for _, n := range lengths {
			sum += n
		}
		if got := float64(sum) / 400; math.Abs(got/float64(mean)-1) > 0.005 || lengths[0] > 10000 || !slices.IsSortedFunc(lengths, func(a, b int) int { return b - a }) {
			t.Errorf("mean %.0f, want %d", got, mean)
		}
	}
}
