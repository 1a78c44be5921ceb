package scheduler_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"temper/internal/inference/scheduler"
)

// fleet is a scheduler and what a caller knows of its decisions.
type fleet struct {
	*testing.T
	s       *scheduler.Scheduler
	now     time.Duration
	attempt map[string]int
	on      map[string]string
}

func newFleet(t *testing.T, change func(*scheduler.Config)) *fleet {
	t.Helper()
	cfg := scheduler.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	s, err := scheduler.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &fleet{T: t, s: s, attempt: map[string]int{}, on: map[string]string{}}
}

// do handles an event that must be taken.
func (f *fleet) do(e scheduler.Event) []scheduler.Decision {
	f.Helper()
	out, err := f.s.Handle(f.now, e)
	if err != nil {
		f.Fatalf("%+v: %v", e, err)
	}
	for _, d := range out {
		switch d.Kind {
		case scheduler.Start:
			f.attempt[d.ID], f.on[d.ID] = d.Attempt, d.Engine
		case scheduler.Stop, scheduler.Drop, scheduler.Refuse:
			delete(f.on, d.ID)
		case scheduler.Drained:
		}
	}
	return out
}

// refuse handles an event that must be refused, with nothing changed.
func (f *fleet) refuse(e scheduler.Event, want error, word string) {
	f.Helper()
	before := f.s.Stats()
	out, err := f.s.Handle(f.now, e)
	if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), word) || len(out) != 0 {
		f.Errorf("%+v: %d decisions, error %v, want %v with %q", e, len(out), err, want, word)
	}
	if after := f.s.Stats(); after != before {
		f.Errorf("%+v was refused and changed %+v to %+v", e, before, after)
	}
}

func (f *fleet) submit(trajectories ...scheduler.Trajectory) []scheduler.Decision {
	f.Helper()
	return f.do(scheduler.Submit{Trajectories: trajectories})
}

func (f *fleet) finish(id string, context int) []scheduler.Decision {
	f.Helper()
	delete(f.on, id)
	return f.do(scheduler.Finish{ID: id, Attempt: f.attempt[id], Context: context})
}

func (f *fleet) empty() {
	f.Helper()
	if left := f.s.Leftover(); len(left) > 0 {
		f.Errorf("reservations are left: %q", left)
	}
}

func trajectory(id, problem string) scheduler.Trajectory {
	return scheduler.Trajectory{ID: id, Run: "r", Problem: problem, Prompt: 100, Limit: 1000, Length: 500}
}

func several(n int, run, problem string) []scheduler.Trajectory {
	var out []scheduler.Trajectory
	for i := range n {
		t := trajectory(fmt.Sprintf("%s/%s/%d", run, problem, i), problem)
		t.Run = run
		out = append(out, t)
	}
	return out
}

var policies = []scheduler.Policy{scheduler.StaticSplit, scheduler.LeastRequests, scheduler.WorstCase, scheduler.Expected, scheduler.Oracle}

func TestBadEventsAreRefusedAndChangeNothing(t *testing.T) {
	f := newFleet(t, nil)
	for _, capacity := range []int64{0, -1, math.MinInt64, math.MaxInt64} {
		f.refuse(scheduler.Join{Engine: "a", Capacity: capacity}, scheduler.ErrInvalid, "capacity")
	}
	f.refuse(scheduler.Join{Capacity: 10}, scheduler.ErrInvalid, "name")
	f.do(scheduler.Join{Engine: "a", Capacity: 10_000})
	f.refuse(scheduler.Join{Engine: "a", Capacity: 20_000}, scheduler.ErrDuplicate, `"a"`)
	for _, used := range []float64{math.NaN(), math.Inf(1), -0.1, 1.1} {
		f.refuse(scheduler.Advance{Engine: "a", Passes: 1, Used: used}, scheduler.ErrInvalid, "capacity in use")
	}
	f.do(scheduler.Advance{Engine: "a", Passes: 7})
	f.refuse(scheduler.Advance{Engine: "a", Passes: 6}, scheduler.ErrInvalid, "6 passes after 7")
	f.refuse(scheduler.Advance{Engine: "a", Passes: math.MaxInt64}, scheduler.ErrInvalid, "passes")
	f.refuse(scheduler.Advance{Engine: "b"}, scheduler.ErrUnknown, `"b"`)
	f.refuse(scheduler.Leave{Engine: "b"}, scheduler.ErrUnknown, `"b"`)
	f.refuse(scheduler.Drain{Engine: "b"}, scheduler.ErrUnknown, `"b"`)
	f.refuse(scheduler.Cancel{ID: "x"}, scheduler.ErrUnknown, `"x"`)
	f.refuse(scheduler.Finish{ID: "x"}, scheduler.ErrUnknown, `"x"`)
	f.refuse(scheduler.Submit{}, scheduler.ErrInvalid, "no trajectories")
	f.refuse(nil, scheduler.ErrInvalid, "nil")
	for _, change := range []func(*scheduler.Trajectory){
		func(t *scheduler.Trajectory) { t.ID = "" }, func(t *scheduler.Trajectory) { t.Prompt = 0 }, func(t *scheduler.Trajectory) { t.Limit = -1 },
		func(t *scheduler.Trajectory) { t.Stage = -1 }, func(t *scheduler.Trajectory) { t.Prompt = math.MaxInt },
	} {
		bad := trajectory("bad", "p")
		change(&bad)
		f.refuse(scheduler.Submit{Trajectories: []scheduler.Trajectory{trajectory("good", "p"), bad}}, scheduler.ErrInvalid, "submit")
	}
	f.refuse(scheduler.Submit{Trajectories: []scheduler.Trajectory{trajectory("x", "p"), trajectory("x", "p")}}, scheduler.ErrDuplicate, `"x"`)
	f.submit(trajectory("x", "p"))
	f.refuse(scheduler.Submit{Trajectories: []scheduler.Trajectory{trajectory("x", "p")}}, scheduler.ErrDuplicate, `"x"`)
	f.refuse(scheduler.Finish{ID: "x", Attempt: 0, Context: 200}, scheduler.ErrStale, "attempt 0")
	for _, context := range []int{-1, 99, 1101, math.MaxInt} {
		f.refuse(scheduler.Finish{ID: "x", Attempt: 1, Context: context}, scheduler.ErrInvalid, "100 to 1100")
	}
	f.refuse(scheduler.Resume{ID: "x", Attempt: 1, Context: 200}, scheduler.ErrInvalid, "does not wait")
	f.finish("x", 200)
	f.refuse(scheduler.Finish{ID: "x", Attempt: 1, Context: 200}, scheduler.ErrUnknown, `"x"`)
	f.empty()
}

func TestBadConfigurations(t *testing.T) {
	for _, change := range []func(*scheduler.Config){
		func(c *scheduler.Config) { c.Policy = "other" }, func(c *scheduler.Config) { c.Coefficient = 0 },
		func(c *scheduler.Config) { c.Coefficient = math.NaN() }, func(c *scheduler.Config) { c.Margin = math.NaN() },
		func(c *scheduler.Config) { c.Margin = -1 }, func(c *scheduler.Config) { c.Longest = 0 }, func(c *scheduler.Config) { c.Longest = math.MaxInt },
		func(c *scheduler.Config) { c.Hold = -1 }, func(c *scheduler.Config) { c.Cost.MaxRecompute = math.NaN() }, func(c *scheduler.Config) { c.Cost.Knee = -1 },
	} {
		cfg := scheduler.DefaultConfig()
		change(&cfg)
		if _, err := scheduler.New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

func TestTooLargeIsRefusedAtOnce(t *testing.T) {
	for _, policy := range policies {
		f := newFleet(t, func(c *scheduler.Config) { c.Policy = policy })
		early := trajectory("early", "p")
		f.submit(early) // no engine yet: it may wait for one
		out := f.do(scheduler.Join{Engine: "small", Capacity: 1099})
		if len(out) != 1 || out[0].Kind != scheduler.Refuse || out[0].ID != "early" {
			t.Errorf("%s: decisions %+v, want the refusal of what waited", policy, out)
		}
		f.refuse(scheduler.Submit{Trajectories: []scheduler.Trajectory{trajectory("x", "p")}}, scheduler.ErrTooLarge, "1100 tokens, the largest engine holds 1099")
		long := trajectory("long", "p")
		long.Limit = 1 << 20
		f.refuse(scheduler.Submit{Trajectories: []scheduler.Trajectory{long}}, scheduler.ErrTooLarge, "longest")
		f.do(scheduler.Join{Engine: "large", Capacity: 1100})
		f.submit(trajectory("x", "p"))
		if f.on["x"] != "large" {
			t.Errorf("%s: it runs on %q, want the engine that can hold it", policy, f.on["x"])
		}
		f.finish("x", 600)
		f.empty()
	}
}

func TestCacheStaysAcrossToolCalls(t *testing.T) {
	f := newFleet(t, nil)
	f.do(scheduler.Join{Engine: "a", Capacity: 100_000})
	f.do(scheduler.Join{Engine: "b", Capacity: 100_000})
	f.submit(trajectory("x", "p"))
	home := f.on["x"]
	for context := 200; context <= 500; context += 100 {
		f.do(scheduler.Pause{ID: "x", Attempt: f.attempt["x"], Context: context})
		if used := f.s.Used(home); used != int64(context) {
			t.Errorf("the engine holds %d tokens while the tool runs, want %d", used, context)
		}
		f.do(scheduler.Resume{ID: "x", Attempt: f.attempt["x"], Context: context + 10})
		if f.on["x"] != home {
			t.Fatalf("it went from %s to %s with nothing waiting", home, f.on["x"])
		}
	}
	f.finish("x", 600)
	f.empty()
}

func TestCacheIsGivenUpWhenOthersNeedIt(t *testing.T) {
	f := newFleet(t, nil)
	f.do(scheduler.Join{Engine: "a", Capacity: 1100})
	f.submit(trajectory("x", "p"))
	f.do(scheduler.Pause{ID: "x", Attempt: 1, Context: 900})
	f.submit(trajectory("y", "q"))
	if f.on["y"] != "" {
		t.Fatal("two are on an engine that holds one")
	}
	f.now += 4e9
	f.do(scheduler.Advance{Engine: "a", Passes: 1})
	if f.on["x"] == "" {
		t.Fatal("the cache was given up after 4 s, want it held for 5")
	}
	f.now += 2e9
	f.do(scheduler.Advance{Engine: "a", Passes: 2})
	if f.on["x"] != "" || f.on["y"] != "a" {
		t.Fatalf("engines are %v, want y in place of x", f.on)
	}
	f.do(scheduler.Resume{ID: "x", Attempt: f.attempt["x"], Context: 910})
	f.finish("y", 300)
	if f.on["x"] != "a" {
		t.Fatal("what gave up its cache does not go on")
	}
	f.finish("x", 1000)
	f.empty()
}

func TestRunsShareTheFleet(t *testing.T) {
	for _, policy := range []scheduler.Policy{scheduler.Expected, scheduler.Oracle, scheduler.WorstCase} {
		f := newFleet(t, func(c *scheduler.Config) { c.Policy = policy })
		f.submit(several(400, "first", "p")...)
		f.submit(several(100, "second", "p")...)
		f.do(scheduler.Join{Engine: "a", Capacity: 50_000})
		count := map[string]int{}
		for id := range f.on {
			count[strings.Split(id, "/")[0]]++
		}
		if total := count["first"] + count["second"]; total < 20 || count["first"]-count["second"] > 2 || count["second"]-count["first"] > 2 {
			t.Errorf("%s: %v run, want as many of each run", policy, count)
		}
	}
}

func TestDrainEmptiesAnEngine(t *testing.T) {
	f := newFleet(t, nil)
	f.do(scheduler.Join{Engine: "a", Capacity: 100_000})
	f.submit(trajectory("x", "p"), trajectory("y", "p"))
	f.do(scheduler.Join{Engine: "b", Capacity: 100_000})
	f.do(scheduler.Drain{Engine: "a"})
	f.submit(trajectory("z", "p"))
	if f.on["z"] != "b" {
		t.Errorf("a draining engine was given more: %v", f.on)
	}
	f.finish("y", 300)
	f.do(scheduler.Pause{ID: "x", Attempt: 1, Context: 300})
	out := f.do(scheduler.Resume{ID: "x", Attempt: 1, Context: 310})
	drained := false
	for _, d := range out {
		drained = drained || d.Kind == scheduler.Drained && d.Engine == "a"
	}
	if f.on["x"] != "b" || !drained {
		t.Errorf("decisions %+v: want x on b, and a drained", out)
	}
	f.do(scheduler.Leave{Engine: "a"})
	f.finish("x", 400)
	f.finish("z", 400)
	f.empty()
}

func TestLongProblemsGoFirst(t *testing.T) {
	f := newFleet(t, func(c *scheduler.Config) { c.Longest = 10_000 })
	f.do(scheduler.Join{Engine: "a", Capacity: 1 << 20})
	for i := range 64 { // problems with one rollout each, long and short ones
		id := fmt.Sprintf("past/%d", i)
		length := 1000 + 8000*(i%2)
		f.submit(scheduler.Trajectory{ID: id, Run: "r", Problem: []string{"short", "long"}[i%2], Prompt: 100, Limit: 10_000})
		f.finish(id, 100+length)
	}
	f.do(scheduler.Leave{Engine: "a"})
	var list []scheduler.Trajectory
	for i := range 20 {
		list = append(list, scheduler.Trajectory{ID: fmt.Sprintf("%d/%d", i%2, i), Run: "r", Problem: []string{"short", "long"}[i%2], Prompt: 100, Limit: 10_000, Step: 1})
	}
	f.submit(list...)
	var first []string
	for _, d := range f.do(scheduler.Join{Engine: "b", Capacity: 40_000}) {
		first = append(first, d.ID)
	}
	if len(first) < 2 || !strings.HasPrefix(first[0], "1/") || !strings.HasPrefix(first[1], "1/") {
		t.Errorf("started %q, want those of the long problem first", first)
	}
}

func TestMovesEvenOutTheTail(t *testing.T) {
	f := newFleet(t, func(c *scheduler.Config) {
		c.Policy, c.Cost.Base, c.Cost.Prefill, c.Cost.MaxRecompute, c.Cost.Knee = scheduler.Oracle, 1000, 1, 1, 0
	})
	f.do(scheduler.Join{Engine: "a", Capacity: 100_000})
	for i := range 8 {
		f.submit(scheduler.Trajectory{ID: fmt.Sprint(i), Run: "r", Problem: "p", Prompt: 100, Limit: 10_000, Length: 8000 + i})
	}
	f.do(scheduler.Join{Engine: "b", Capacity: 100_000})
	for passes := int64(64); passes <= 1024; passes += 64 {
		f.do(scheduler.Advance{Engine: "b", Passes: passes})
		f.do(scheduler.Advance{Engine: "a", Passes: passes})
	}
	onB := 0
	for _, e := range f.on {
		if e == "b" {
			onB++
		}
	}
	if onB < 3 || onB > 4 {
		t.Errorf("%d of 8 are on the second engine, want about half", onB)
	}
	if moves := f.s.Stats().Moves; moves != int64(onB) {
		t.Errorf("%d moves for %d trajectories: some went back and forth", moves, onB)
	}
}

// TestARejectedTrajectoryWaits: an engine that rejects is left alone until something of it
// ends or it reports.
func TestARejectedTrajectoryWaits(t *testing.T) {
	f := newFleet(t, nil)
	f.do(scheduler.Join{Engine: "a", Capacity: 100_000})
	f.submit(trajectory("x", "p"), trajectory("y", "p"))
	f.refuse(scheduler.Reject{ID: "x", Attempt: 7, Context: 150}, scheduler.ErrStale, "attempt 7")
	delete(f.on, "x")
	f.do(scheduler.Reject{ID: "x", Attempt: f.attempt["x"], Context: 150})
	f.submit(trajectory("z", "p"))
	if f.on["x"] != "" || f.on["z"] != "" {
		t.Fatalf("engines are %v: one that rejects was given more", f.on)
	}
	f.refuse(scheduler.Reject{ID: "x", Attempt: f.attempt["x"], Context: 150}, scheduler.ErrInvalid, "does not run")
	f.refuse(scheduler.Finish{ID: "x", Attempt: f.attempt["x"], Context: 150}, scheduler.ErrInvalid, "waits for an engine")
	f.do(scheduler.Advance{Engine: "a", Passes: 1})
	if f.on["x"] != "a" || f.on["z"] != "a" {
		t.Fatalf("engines are %v after a report, want all on a", f.on)
	}
	delete(f.on, "x")
	f.do(scheduler.Reject{ID: "x", Attempt: f.attempt["x"], Context: 160})
	f.finish("y", 300)
	if f.on["x"] != "a" {
		t.Fatal("the end of another trajectory makes room")
	}
	f.do(scheduler.Pause{ID: "x", Attempt: f.attempt["x"], Context: 200})
	f.finish("x", 200) // after a turn, not in one
	f.finish("z", 200)
	f.empty()
}

// TestContextsOfAnEngineAreBounded: an engine may hold many tokens, and few of one trajectory.
func TestContextsOfAnEngineAreBounded(t *testing.T) {
	for _, policy := range policies {
		f := newFleet(t, func(c *scheduler.Config) { c.Policy = policy })
		f.refuse(scheduler.Join{Engine: "a", Capacity: 100_000, Longest: -1}, scheduler.ErrInvalid, "at least 1")
		f.do(scheduler.Join{Engine: "a", Capacity: 100_000, Longest: 1099})
		f.refuse(scheduler.Submit{Trajectories: []scheduler.Trajectory{trajectory("x", "p")}}, scheduler.ErrTooLarge, "holds 1099")
		f.do(scheduler.Join{Engine: "b", Capacity: 2000, Longest: 1100})
		f.submit(trajectory("x", "p"))
		if f.on["x"] != "b" {
			t.Errorf("%s: it runs on %q, want b", policy, f.on["x"])
		}
		f.finish("x", 600)
		f.empty()
	}
}
