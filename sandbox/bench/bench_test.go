package bench_test

import (
	"testing"

	"temper/sandbox/bench"
)

func TestCompare(t *testing.T) {
	c, err := bench.Compare(t.Context(), bench.Config{Calls: 300, FreshCalls: 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("warm %+v", c.Warm)
	t.Logf("fresh %+v", c.Fresh)
	t.Logf("speedup %.1f, by cpu %.1f", c.Speedup, c.CPUSpeedup)
}
