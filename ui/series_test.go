package ui

import (
	"encoding/json"
	"math"
	"testing"
)

// TestSeriesAreEncodedAsJSON: the short way gives what encoding/json gives.
func TestSeriesAreEncodedAsJSON(t *testing.T) {
	n := func(x float64) *Number { v := Number(x); return &v }
	for name, v := range map[string]SeriesView{
		"empty": {Values: map[string][]*Number{}, Steps: []int{}, Stages: []string{}, Wall: []float64{}, Tokens: []float64{}},
		"all": {
			Steps: []int{1, 2, 3}, Stages: []string{`a"<b`, `"values":null`, "c"}, Wall: []float64{0, 1.5, 1e21}, Tokens: []float64{1, 2, 3}, Thinned: true,
			Values: map[string][]*Number{"b": {n(1), nil, n(math.NaN())}, "a/<x>": {n(math.Inf(1)), n(-0.1), n(1e-9)}, "none": {}},
		},
	} {
		type plain SeriesView
		want, err := json.Marshal(plain(v))
		if err != nil {
			t.Fatal(err)
		}
		if got := v.encoded(); string(got) != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	if got := (SeriesView{Wall: []float64{math.NaN()}}).encoded(); got != nil {
		t.Errorf("a time that is none is %s", got)
	}
}
