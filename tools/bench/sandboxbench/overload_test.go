package sandboxbench_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/sandboxtest"
	"temper/tools/bench/loadgen"
	"temper/tools/bench/sandboxbench"
)

// TestOverloadFindsFalseTimeLimits: a service that blames programs once many are inside
// does not hold; programs with many threads may end as they like.
func TestOverloadFindsFalseTimeLimits(t *testing.T) {
	var inside atomic.Int32
	fake := &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
		defer inside.Add(-1)
		crowded := int(inside.Add(1)) > 2*runtime.GOMAXPROCS(0)
		time.Sleep(5 * time.Millisecond)
		if crowded || req.Limits.CPU > 0 {
			return sandbox.Result{Status: sandbox.StatusTimeLimit}, nil
		}
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: "done\n"}, nil
	}}
	var rounds int
	levels, err := sandboxbench.Overload(t.Context(), sandboxbench.OverloadConfig{
		Target: loadgen.FromExecutor(fake), Levels: []int{1, 32}, Calls: 40, Hostile: 10,
		Note: func(int, sandboxbench.OverloadLevel) { rounds++ },
	})
	if err != nil || rounds != 4 || len(levels) != 2 {
		t.Fatalf("got %+v, %v after %d rounds", levels, err, rounds)
	}
	if l := levels[0]; !l.Holds() || l.Good != 80 || l.RateRatio != 1 {
		t.Errorf("at ease: %+v", l)
	}
	if l := levels[1]; l.Holds() || l.Kinds["status_time_limit"] == 0 {
		t.Errorf("crowded: %+v", l)
	}
}
