package bench_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/bench"
	"temper/sandbox/sandboxtest"
)

func TestFiguresCountOnlyGoodCalls(t *testing.T) {
	var n atomic.Int32
	exec := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		switch n.Add(1) {
		case 1:
			return sandbox.Result{}, errors.New("no answer")
		case 2:
			return sandbox.Result{Status: sandbox.StatusTimeLimit}, nil
		default:
			return sandbox.Result{Status: sandbox.StatusOK, Usage: sandbox.Usage{Wall: 3 * time.Millisecond}}, nil
		}
	}}
	f, err := bench.Run(t.Context(), exec, bench.Load{Concurrency: 4, Calls: 50})
	if err != nil {
		t.Fatal(err)
	}
	if f.Calls != 50 || f.Failed != 2 || f.Failure == "" || f.Service != 3*time.Millisecond {
		t.Errorf("figures %+v, want 50 calls, 2 failed, service 3ms", f)
	}
	if f.P50 <= 0 || f.P50 > f.P90 || f.P90 > f.P99 || f.P99 > f.Max || f.PerSecond <= 0 {
		t.Errorf("percentiles are out of order: %+v", f)
	}
	if _, err := bench.Run(t.Context(), exec, bench.Load{}); err == nil {
		t.Error("an empty load was accepted")
	}
}

func TestWarmInterpretersBeatFreshOnes(t *testing.T) {
	c, err := bench.Compare(t.Context(), bench.Config{Calls: 60, FreshCalls: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append([]bench.Figures{c.Warm}, c.Fresh.Figures, c.FreshBare.Figures) {
		if f.Failed > 0 {
			t.Fatalf("%d of %d calls failed: %s", f.Failed, f.Calls, f.Failure)
		}
	}
	// Far below what is measured on an idle machine, far above a zygote that is of no use.
	if c.FreshBare.CPURatio < 1.5 || c.Fresh.CPURatio < 1.5 {
		t.Errorf("warm %v, fresh %v, bare %v of processor time for a call", c.Warm.CPU, c.Fresh.CPU, c.FreshBare.CPU)
	}
}
