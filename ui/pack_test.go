package ui

import (
	"math"
	"testing"
)

// TestFiltersCompareTheValuesThemselves, however many of them a column has.
func TestFiltersCompareTheValuesThemselves(t *testing.T) {
	const big = 1 << 24 // float32 does not have the number after it
	for name, c := range map[string]struct {
		at   func(i int) float64
		term term
		want int
	}{
		"few values":     {func(i int) float64 { return big + float64(i%2) }, term{sign: "=", number: big}, 500},
		"large integers": {func(i int) float64 { return big + float64(i) }, term{sign: "=", number: big + 1}, 1},
		"close values":   {func(i int) float64 { return -0.5 - float64(i)*1e-12 }, term{sign: "<", number: -0.5 - 9.5e-12}, 990},
		"float32":        {func(i int) float64 { return float64(i) / 4 }, term{sign: ">=", number: 200}, 200},
		"not recorded": {func(i int) float64 {
			if i%2 == 0 {
				return math.NaN()
			}
			return float64(i)
		}, term{sign: "!=", number: 1}, 499},
	} {
		list := make([]float64, 1000)
		for i := range list {
			list[i] = c.at(i)
		}
		p := packNumbers(list)
		tab := &table{rows: len(list), columns: map[string]*packedColumn{"x": p}}
		c.term.column = "x"
		if got := tab.match([]term{c.term}, make([]bool, len(list))); got != c.want {
			t.Errorf("%s: %d rows, want %d", name, got, c.want)
		}
		for i, x := range list {
			if got := p.at(i); got != x && !math.IsNaN(x) {
				t.Fatalf("%s: row %d is %v, want %v", name, i, got, x)
			}
		}
	}
}
