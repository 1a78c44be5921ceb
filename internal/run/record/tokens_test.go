package record_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/internal/run/record"
)

// TestTokensComeBack: differences are kept to a millionth, entropies to a thousandth, and
// a record that is cut anywhere is refused.
func TestTokensComeBack(t *testing.T) {
	list := []record.TokenStats{
		{Rollout: 3, Differences: []float64{1.25e-6, -0.5, 0}, Entropies: []float64{0, 2.3456, 11.9}},
		{Rollout: 0, Differences: []float64{math.NaN()}, Entropies: []float64{math.Inf(1)}},
		{Rollout: 1, Differences: []float64{}, Entropies: []float64{}},
	}
	data, err := record.EncodeTokens(list)
	if err != nil {
		t.Fatal(err)
	}
	got, err := record.DecodeTokens(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list[0], got[0], cmpopts.EquateApprox(0, 5.1e-4)); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if d := got[0].Differences[0]; math.Abs(d-1.25e-6) > 0.5e-6 {
		t.Errorf("a difference of 1.25e-6 is read as %g", d)
	}
	if x := got[1]; x.Differences[0] < 1000 || x.Entropies[0] < 1e6 || len(got) != 3 {
		t.Errorf("what is not finite: %+v", x)
	}
	for n := range data {
		if _, err := record.DecodeTokens(data[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are read", n, len(data))
		}
	}
	if _, err := record.EncodeTokens([]record.TokenStats{{Differences: []float64{1}}}); err == nil {
		t.Error("a token without its entropy is written")
	}
}

// TestShortTrajectoriesComeBack: the index of a trajectory may be larger than the number of
// bytes behind it.
func TestShortTrajectoriesComeBack(t *testing.T) {
	want := []record.TokenStats{
		{Rollout: 31, Differences: []float64{0}, Entropies: []float64{0}},
		{Rollout: 63, Differences: []float64{}, Entropies: []float64{}},
	}
	data, err := record.EncodeTokens(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := record.DecodeTokens(data)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, want -, got +\n%s", err, diff)
	}
}
