package sandboxbench

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/sandboxtest"
	"temper/tools/bench/loadgen"
)

// answers are what each honest call of a soak has to print, by run and id.
func answers(cfg TenantsConfig, units int) map[string]string {
	d, out := dealer{seed: cfg.Seed, hostile: cfg.Hostile}, map[string]string{}
	for number := range units {
		u := d.unit(number)
		for place := range u.calls {
			for _, run := range []string{"tenant-0", "tenant-1"} {
				for leg := range 2 {
					c := u.call(run, leg, place)
					out[run+" "+c.ID] = c.Program.Want
				}
			}
		}
	}
	return out
}

// idleService is a process that is looked at instead of a service.
func idleService(t *testing.T) int {
	t.Helper()
	service := exec.CommandContext(t.Context(), "sleep", "600")
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Wait() }) // the end of the context has killed it
	return service.Process.Pid
}

func TestTenantsAccountForEveryCall(t *testing.T) {
	honest := func(want string, req sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: want}, nil
	}
	for name, c := range map[string]struct {
		answer  func(want string, req sandbox.Request) (sandbox.Result, error)
		problem func(r TenantsReport) bool // found
	}{
		"honest": {honest, func(r TenantsReport) bool {
			return r.Exact() && r.Honest > 300 && r.Hostile > 5 && r.Sessions > 10 && r.Batches > 1
		}},
		"the answer of a neighbour": {func(want string, req sandbox.Request) (sandbox.Result, error) {
			return honest(strings.ReplaceAll(want, "tenant-1", "tenant-0"), req)
		}, func(r TenantsReport) bool { return r.Wrong == r.Honest/2 && !r.Exact() }},
		"an innocent program is blamed": {func(string, sandbox.Request) (sandbox.Result, error) {
			return sandbox.Result{Status: sandbox.StatusTimeLimit}, nil
		}, func(r TenantsReport) bool { return r.Blamed == r.Honest && r.Wrong == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := TenantsConfig{PID: idleService(t), Calls: 400, Hostile: 0.05, Seed: 5, Parts: 1}
			wants := answers(cfg, 1000)
			cfg.Connect = func(loadgen.API) (loadgen.Target, error) {
				return loadgen.FromExecutor(&sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
					return c.answer(wants[req.Run+" "+req.ID], req)
				}}), nil
			}
			cfg.CloseSession = func(context.Context, string, string) (bool, error) { return true, nil }
			report, err := SoakTenants(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if !c.problem(report) || report.Calls < 400 || report.Calls != report.Honest+report.Hostile {
				t.Errorf("%+v", report)
			}
		})
	}
}

func TestTenantsGoOn(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	cfg := TenantsConfig{PID: idleService(t), Calls: 400, Hostile: 0.05, Seed: 6, Parts: 1}
	wants := answers(cfg, 1000)
	var calls atomic.Int64
	cfg.Connect = func(loadgen.API) (loadgen.Target, error) {
		return loadgen.FromExecutor(&sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
			if calls.Add(1) == 350 { // 200 of them are for warming up
				stop()
			}
			return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: wants[req.Run+" "+req.ID]}, nil
		}}), nil
	}
	cfg.CloseSession = func(context.Context, string, string) (bool, error) { return true, nil }
	first, err := SoakTenants(ctx, cfg)
	if err != nil || first.Calls == 0 || first.Calls >= 400 {
		t.Fatalf("stopped after %d calls of 400: %v", first.Calls, err)
	}
	units, was := first.Units, first.Calls
	cfg.From = &first
	whole, err := SoakTenants(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !whole.Exact() || whole.Calls < 400 || whole.Units <= units || len(whole.Legs) != 2 || whole.Legs[0].Calls != was || whole.Legs[1].Calls != whole.Calls-was {
		t.Errorf("after %d calls: %+v", was, whole)
	}
}

// A call without an outcome is sent again and counted; one that never has any is lost.
func TestTenantsTryAgain(t *testing.T) {
	var mu sync.Mutex
	tries := map[string]int{}
	s := &tenants{cfg: TenantsConfig{Timeout: time.Minute, Pause: time.Microsecond}.withDefaults(), report: TenantsReport{Retried: map[string]int{}, Ends: map[string]int{}}}
	target := loadgen.FromExecutor(&sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		if tries[req.ID]++; req.ID == "never" || tries[req.ID] < 3 {
			return sandbox.Result{}, sandbox.ErrUnavailable
		}
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: "2"}, nil
	}})
	s.send(t.Context(), target, []loadgen.Call{{ID: "late", Program: loadgen.Trivial()}, {ID: "never", Program: loadgen.Trivial()}})
	if r := s.report; r.Lost != 1 || r.Wrong+r.Blamed != 0 || r.Retried["unavailable"] != 2+maxTries-1 || tries["late"] != 3 {
		t.Errorf("%+v after %v tries", s.report, tries)
	}
}

func TestDealerRepeatsAndHoldsItsShares(t *testing.T) {
	d := dealer{seed: 7, hostile: 0.05}
	calls, hostile, names := 0, 0, map[string]bool{}
	for number := range 20000 {
		u := d.unit(number)
		calls += len(u.calls)
		for _, c := range u.calls {
			if c.attack != "" {
				hostile++
				names[c.attack] = true
			}
		}
		if number%1000 == 0 && len(d.unit(number).calls) != len(u.calls) {
			t.Fatalf("unit %d differs when it is dealt again", number)
		}
	}
	if share := float64(hostile) / float64(calls); share < 0.045 || share > 0.055 {
		t.Errorf("%.3f of the calls are hostile, want 0.05", share)
	}
	if want := len(loadgen.Attacks()) + len(stopped()) + len(abuses()); len(names) != want || len(loadgen.Attacks()) != 51 {
		t.Errorf("%d hostile programs are dealt of %d, %d of them for any place", len(names), want, len(loadgen.Attacks()))
	}
}

func TestTenantsGoOnWithTheSameCountOnly(t *testing.T) {
	_, err := SoakTenants(t.Context(), TenantsConfig{Seed: 2, From: &TenantsReport{Seed: 1, Tenants: 2}})
	if err == nil || !strings.Contains(err.Error(), "seed 1") {
		t.Errorf("got error %v, want one that names both seeds", err)
	}
}
