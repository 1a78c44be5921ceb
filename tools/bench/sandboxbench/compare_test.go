package sandboxbench_test

import (
	"testing"

	"temper/tools/bench/loadgen"
	"temper/tools/bench/sandboxbench"
)

func TestWarmInterpretersBeatFreshOnes(t *testing.T) {
	c, err := sandboxbench.Compare(t.Context(), sandboxbench.Config{Calls: 60, FreshCalls: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append([]loadgen.Figures{c.Warm}, c.Fresh.Figures, c.FreshBare.Figures) {
		if f.Failed > 0 {
			t.Fatalf("%d of %d calls failed: %s", f.Failed, f.Calls, f.Failure)
		}
	}
	// Far below what is measured on an idle machine, far above a zygote that is of no use.
	if c.FreshBare.CPURatio < 1.5 || c.Fresh.CPURatio < 1.5 {
		t.Errorf("warm %v, fresh %v, bare %v of processor time for a call", c.Warm.CPU, c.Fresh.CPU, c.FreshBare.CPU)
	}
}
