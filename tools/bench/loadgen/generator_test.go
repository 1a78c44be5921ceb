package loadgen_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"temper/sandbox"
	"temper/sandbox/sandboxtest"
	"temper/tools/bench/loadgen"
)

// right answers print(1+1).
func right(req sandbox.Request) (sandbox.Result, error) {
	return sandbox.Result{Status: sandbox.StatusOK, Stdout: "2\n", Usage: sandbox.Usage{Wall: 3 * time.Millisecond, CPU: time.Millisecond}}, nil
}

func TestFiguresCountOnlyGoodCalls(t *testing.T) {
	var n atomic.Int32
	exec := &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
		switch n.Add(1) {
		case 1:
			return sandbox.Result{}, errors.New("no answer")
		case 2:
			return sandbox.Result{Status: sandbox.StatusTimeLimit}, nil
		case 3:
			return sandbox.Result{Status: sandbox.StatusOK, Stdout: "3\n"}, nil
		case 4:
			return sandbox.Result{Status: sandbox.StatusInternal}, nil
		case 5:
			return sandbox.Result{}, sandbox.ErrUnavailable
		default:
			return right(req)
		}
	}}
	f, err := loadgen.Run(t.Context(), loadgen.FromExecutor(exec), loadgen.Load{Concurrency: 4, Calls: 50, Prefix: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if f.Calls != 50 || f.Failed != 5 || f.Wrong != 2 || f.Lost != 3 || f.Failure == "" || f.Service != 3*time.Millisecond {
		t.Errorf("figures %+v, want 50 calls, 2 wrong, 3 lost, service 3ms", f)
	}
	for _, kind := range []string{"no_answer", "status_time_limit", "output", "status_internal", "unavailable"} {
		if f.Kinds[kind] != 1 {
			t.Errorf("%d calls of kind %s, want 1: %v", f.Kinds[kind], kind, f.Kinds)
		}
	}
	if f.P50 <= 0 || f.P50 > f.P90 || f.P90 > f.P99 || f.P99 > f.Max || f.PerSecond <= 0 {
		t.Errorf("percentiles are out of order: %+v", f)
	}
	for _, load := range []loadgen.Load{{}, {Rate: 5}, {Rate: -1, Duration: 1}} {
		if _, err := loadgen.Run(t.Context(), loadgen.FromExecutor(exec), load); err == nil {
			t.Errorf("load %+v was accepted", load)
		}
	}
}

func TestPercentilesAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		exec := &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
			time.Sleep(time.Duration(n.Add(1)) * time.Millisecond)
			return right(req)
		}}
		f, err := loadgen.Run(t.Context(), loadgen.FromExecutor(exec), loadgen.Load{Concurrency: 1, Calls: 200})
		if err != nil {
			t.Fatal(err)
		}
		if f.P50 != 100*time.Millisecond || f.P90 != 180*time.Millisecond || f.P99 != 198*time.Millisecond ||
			f.Max != 200*time.Millisecond || f.Mean != 100500*time.Microsecond {
			t.Errorf("of 1 to 200 ms: %+v", f)
		}
	})
}

// A service that stands still for a second must show it in all calls that would
// have come in that second, not only in the one that was under way.
func TestOpenLoopCountsFromTheIntendedArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stalled atomic.Bool
		gate := make(chan struct{}, 1) // one call at a time, as a stalled service has it
		exec := &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
			gate <- struct{}{}
			defer func() { <-gate }()
			if stalled.CompareAndSwap(false, true) {
				time.Sleep(time.Second)
			}
			time.Sleep(time.Microsecond)
			return right(req)
		}}
		load := loadgen.Load{Rate: 100, Duration: 2 * time.Second, Seed: 7}
		f, err := loadgen.Run(t.Context(), loadgen.FromExecutor(exec), load)
		if err != nil {
			t.Fatal(err)
		}
		bounded := load
		bounded.Concurrency = 1
		stalled.Store(false)
		g, err := loadgen.Run(t.Context(), loadgen.FromExecutor(exec), bounded)
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range map[string]loadgen.Figures{"unbounded": f, "one in flight": g} {
			// About half of the calls arrive in the stall and wait half of it: 0.25 s.
			if f.Calls < 150 || f.Calls > 250 || f.Failed > 0 || f.Mean < 180*time.Millisecond || f.P90 < 700*time.Millisecond {
				t.Errorf("%s: %d calls, mean %v, p90 %v, %d failed; want about 200, 0.25 s and 0.8 s", name, f.Calls, f.Mean, f.P90, f.Failed)
			}
		}
		if f.Mean != g.Mean || f.P99 != g.P99 {
			t.Errorf("the bound on calls in flight hides waiting: %v and %v", f.Mean, g.Mean)
		}
	})
}

func TestArrivalsRepeatWithTheSeed(t *testing.T) {
	count := func(seed uint64) (calls int) {
		synctest.Test(t, func(t *testing.T) {
			f, err := loadgen.Run(t.Context(), loadgen.FromExecutor(&sandboxtest.Fake{Func: right}),
				loadgen.Load{Rate: 50, Duration: 10 * time.Second, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			calls = f.Calls
		})
		return calls
	}
	a, b, c := count(1), count(1), count(2)
	if a != b || a == c || a < 400 || a > 600 {
		t.Errorf("%d, %d and %d arrivals for seeds 1, 1, 2; want the same, another, about 500", a, b, c)
	}
}

func TestRefusedCallsComeBackOnAdvice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		exec := &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
			if n.Add(1) <= 3 {
				return sandbox.Result{}, &sandbox.Overloaded{Detail: "full", RetryAfter: 2 * time.Second}
			}
			return right(req)
		}}
		f, err := loadgen.Run(t.Context(), loadgen.FromExecutor(exec), loadgen.Load{Concurrency: 1, Calls: 1})
		if err != nil {
			t.Fatal(err)
		}
		if f.Failed != 0 || f.Resent != 3 || f.Mean != 6*time.Second {
			t.Errorf("%+v; want a good call after three refusals, its time from the first", f)
		}
		always := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
			return sandbox.Result{}, &sandbox.Overloaded{RetryAfter: time.Second}
		}}
		f, err = loadgen.Run(t.Context(), loadgen.FromExecutor(always), loadgen.Load{Concurrency: 2, Calls: 2, Timeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if f.Lost != 2 || f.Elapsed != 5*time.Second {
			t.Errorf("%+v; want both calls lost when their time is over", f)
		}
	})
}

func TestMixesRepeatAndHoldWhatTheySay(t *testing.T) {
	mix, err := loadgen.NamedMix("soak", 3)
	if err != nil {
		t.Fatal(err)
	}
	hostile := map[string]int{}
	for i := range 1000 {
		if mix(i).AnyEnd {
			hostile[mix(i).Name]++
		}
		if mix(i).Code != mix(i+1000).Code {
			t.Fatalf("call %d and %d run other programs", i, i+1000)
		}
	}
	if len(hostile) != len(loadgen.Hostile()) || len(hostile) != 20 {
		t.Errorf("%d kinds of hostile programs in 1,000 calls, want 20 of 20: %v", len(hostile), hostile)
	}
	for _, name := range loadgen.Mixes() {
		if _, err := loadgen.NamedMix(name, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := loadgen.NamedMix("nothing", 1); err == nil {
		t.Error("an unknown mix was accepted")
	}
}

// TestPatience: a call without an outcome is sent again under its own id, for as long as the load
// says and no longer; a wrong answer is not.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		exec := &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
			switch {
			case req.ID == "x-0":
				return sandbox.Result{Status: sandbox.StatusOK, Stdout: "3\n"}, nil
			case req.ID == "x-1" || time.Since(start) < 2*time.Second:
				return sandbox.Result{}, sandbox.ErrUnavailable
			default:
				return right(req)
			}
		}}
		f, err := loadgen.Run(t.Context(), loadgen.FromExecutor(exec), loadgen.Load{Concurrency: 8, Calls: 8, Prefix: "x", Patience: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if f.Calls != 8 || f.Wrong != 1 || f.Lost != 1 || f.Resent < 6*10 || f.Max > 3*time.Second || f.Elapsed > 11*time.Second {
			t.Errorf("figures %+v, want 1 wrong, 1 lost after 10s, the others after 2s", f)
		}
	})
}
