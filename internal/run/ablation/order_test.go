package ablation

import (
	"math"
	"slices"
	"testing"
)

// TestReadSeeds reads lists and ranges, up to the largest number that a seed can be.
func TestReadSeeds(t *testing.T) {
	for text, want := range map[string][]uint64{
		"7": {7}, "1-3, 9": {1, 2, 3, 9}, "0": {0}, "18446744073709551615": {math.MaxUint64},
		"18446744073709551614-18446744073709551615": {math.MaxUint64 - 1, math.MaxUint64},
		"3-1": nil, "1-101": nil, "18446744073709551616": nil, "-1": nil, "1-": nil, "a": nil, "0-18446744073709551615": nil,
	} {
		o := Order{Seeds: text}
		if err := o.readSeeds(); (err == nil) != (want != nil) || err == nil && !slices.Equal(o.Input.Seeds, want) {
			t.Errorf("%s: %v, want %v: %v", text, o.Input.Seeds, want, err)
		}
	}
}
