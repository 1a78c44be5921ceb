package dataset_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"temper/internal/dataset"
)

// TestMixKeepsItsShares: the rows of each part are as many as its share says, none comes
// once more than another of its part, and the order is a function of the seed.
func TestMixKeepsItsShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weighted := rapid.Bool().Draw(t, "weighted")
		var parts []dataset.Part
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			p := dataset.Part{Rows: rapid.IntRange(1, 30).Draw(t, "rows")}
			if share := rapid.Float64Range(0.1, 4).Draw(t, "share"); weighted {
				p.Weight = share
			} else {
				p.Epochs = share
			}
			parts = append(parts, p)
		}
		num := 0
		if weighted {
			num = rapid.IntRange(1, 100).Draw(t, "num")
		}
		picks, err := dataset.Mix(parts, num, 7)
		if err != nil {
			if strings.Contains(err.Error(), "round to no rows") {
				return
			}
			t.Fatal(err)
		}
		if rows, err := dataset.MixRows(parts, num); err != nil || rows != len(picks) {
			t.Fatalf("%d rows are counted (%v), and there are %d", rows, err, len(picks))
		}
		if weighted && len(picks) != num {
			t.Fatalf("%d rows, want %d", len(picks), num)
		}
		times := make([]map[int]int, len(parts))
		given := make([]int, len(parts))
		for _, p := range picks {
			if times[p.Part] == nil {
				times[p.Part] = map[int]int{}
			}
			times[p.Part][p.Row]++
			given[p.Part]++
		}
		weights := 0.0
		for _, p := range parts {
			weights += p.Weight
		}
		for i, p := range parts {
			want := float64(p.Rows) * p.Epochs
			if weighted {
				want = float64(num) * p.Weight / weights
			}
			if diff := float64(given[i]) - want; diff < -1 || diff > 1 {
				t.Fatalf("part %d gives %d rows, want %.2f", i, given[i], want)
			}
			for row, n := range times[i] {
				if n > given[i]/p.Rows+1 || len(times[i]) < p.Rows && n > 1 {
					t.Fatalf("row %d of part %d comes %d times of %d", row, i, n, given[i])
				}
			}
		}
		again, err := dataset.Mix(parts, num, 7)
		if err != nil || !slices.Equal(again, picks) {
			t.Fatal("a second mix differs")
		}
	})
}

// TestMixesThatCannotBe are refused.
func TestMixesThatCannotBe(t *testing.T) {
	for want, parts := range map[string][]dataset.Part{
		"has no rows":        {{Rows: 0}},
		"want numbers from":  {{Rows: 1, Weight: -1}},
		"round to no rows":   {{Rows: 1, Epochs: 0.1}},
		"a mix of 5 rows ne": {{Rows: 1}},
		"than a number can":  {{Rows: 9, Weight: 1e308}, {Rows: 9, Weight: 1e308}},
		"state smaller ones": {{Rows: 9, Weight: 1e307}, {Rows: 9, Weight: 1}},
	} {
		num := 0
		if strings.Contains(want, "5 rows") {
			num = 5
		}
		if _, err := dataset.Mix(parts, num, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error is %v, want %q", parts, err, want)
		}
	}
}
