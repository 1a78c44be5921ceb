package dispatch_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"temper/internal/dispatch"
)

// fleet is a scheduler and what a caller knows of its decisions.
type fleet struct {
	*testing.T
	s       *dispatch.Scheduler
	now     time.Duration
	attempt map[string]int
	on      map[string]string
}

func newFleet(t *testing.T, change func(*dispatch.Config)) *fleet {
	t.Helper()
	cfg := dispatch.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	s, err := dispatch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &fleet{T: t, s: s, attempt: map[string]int{}, on: map[string]string{}}
}

// do handles an event that must be taken.
func (f *fleet) do(e dispatch.Event) []dispatch.Decision {
	f.Helper()
	out, err := f.s.Handle(f.now, e)
	if err != nil {
		f.Fatalf("%+v: %v", e, err)
	}
	for _, d := range out {
		switch d.Kind {
		case dispatch.Start:
			f.attempt[d.ID], f.on[d.ID] = d.Attempt, d.Engine
		case dispatch.Stop, dispatch.Drop, dispatch.Refuse:
			delete(f.on, d.ID)
		case dispatch.Drained:
		}
	}
	return out
}

// refuse handles an event that must be refused, with nothing changed.
func (f *fleet) refuse(e dispatch.Event, want error, word string) {
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

func (f *fleet) submit(trajectories ...dispatch.Trajectory) []dispatch.Decision {
	f.Helper()
	return f.do(dispatch.Submit{Trajectories: trajectories})
}

func (f *fleet) finish(id string, context int) []dispatch.Decision {
	f.Helper()
	delete(f.on, id)
	return f.do(dispatch.Finish{ID: id, Attempt: f.attempt[id], Context: context})
}

func (f *fleet) empty() {
	f.Helper()
	if left := f.s.Leftover(); len(left) > 0 {
		f.Errorf("reservations are left: %q", left)
	}
}

func trajectory(id, problem string) dispatch.Trajectory {
	return dispatch.Trajectory{ID: id, Run: "r", Problem: problem, Prompt: 100, Limit: 1000, Length: 500}
}

func several(n int, run, problem string) []dispatch.Trajectory {
	var out []dispatch.Trajectory
	for i := range n {
		t := trajectory(fmt.Sprintf("%s/%s/%d", run, problem, i), problem)
		t.Run = run
		out = append(out, t)
	}
	return out
}

var policies = []dispatch.Policy{dispatch.StaticSplit, dispatch.LeastRequests, dispatch.WorstCase, dispatch.Expected, dispatch.Oracle}

func TestBadEventsAreRefusedAndChangeNothing(t *testing.T) {
	f := newFleet(t, nil)
	for _, capacity := range []int64{0, -1, math.MinInt64, math.MaxInt64} {
		f.refuse(dispatch.Join{Engine: "a", Capacity: capacity}, dispatch.ErrInvalid, "capacity")
	}
	f.refuse(dispatch.Join{Capacity: 10}, dispatch.ErrInvalid, "name")
	f.do(dispatch.Join{Engine: "a", Capacity: 10_000})
	f.refuse(dispatch.Join{Engine: "a", Capacity: 20_000}, dispatch.ErrDuplicate, `"a"`)
	for _, used := range []float64{math.NaN(), math.Inf(1), -0.1, 1.1} {
		f.refuse(dispatch.Advance{Engine: "a", Passes: 1, Used: used}, dispatch.ErrInvalid, "capacity in use")
	}
	f.do(dispatch.Advance{Engine: "a", Passes: 7})
	f.refuse(dispatch.Advance{Engine: "a", Passes: 6}, dispatch.ErrInvalid, "6 passes after 7")
	f.refuse(dispatch.Advance{Engine: "a", Passes: math.MaxInt64}, dispatch.ErrInvalid, "passes")
	f.refuse(dispatch.Advance{Engine: "b"}, dispatch.ErrUnknown, `"b"`)
	f.refuse(dispatch.Leave{Engine: "b"}, dispatch.ErrUnknown, `"b"`)
	f.refuse(dispatch.Drain{Engine: "b"}, dispatch.ErrUnknown, `"b"`)
	f.refuse(dispatch.Cancel{ID: "x"}, dispatch.ErrUnknown, `"x"`)
	f.refuse(dispatch.Finish{ID: "x"}, dispatch.ErrUnknown, `"x"`)
	f.refuse(dispatch.Submit{}, dispatch.ErrInvalid, "no trajectories")
	f.refuse(nil, dispatch.ErrInvalid, "nil")
	for _, change := range []func(*dispatch.Trajectory){
		func(t *dispatch.Trajectory) { t.ID = "" }, func(t *dispatch.Trajectory) { t.Prompt = 0 }, func(t *dispatch.Trajectory) { t.Limit = -1 },
		func(t *dispatch.Trajectory) { t.Stage = -1 }, func(t *dispatch.Trajectory) { t.Prompt = math.MaxInt },
	} {
		bad := trajectory("bad", "p")
		change(&bad)
		f.refuse(dispatch.Submit{Trajectories: []dispatch.Trajectory{trajectory("good", "p"), bad}}, dispatch.ErrInvalid, "submit")
	}
	f.refuse(dispatch.Submit{Trajectories: []dispatch.Trajectory{trajectory("x", "p"), trajectory("x", "p")}}, dispatch.ErrDuplicate, `"x"`)
	f.submit(trajectory("x", "p"))
	f.refuse(dispatch.Submit{Trajectories: []dispatch.Trajectory{trajectory("x", "p")}}, dispatch.ErrDuplicate, `"x"`)
	f.refuse(dispatch.Finish{ID: "x", Attempt: 0, Context: 200}, dispatch.ErrStale, "attempt 0")
	for _, context := range []int{-1, 99, 1101, math.MaxInt} {
		f.refuse(dispatch.Finish{ID: "x", Attempt: 1, Context: context}, dispatch.ErrInvalid, "100 to 1100")
	}
	f.refuse(dispatch.Resume{ID: "x", Attempt: 1, Context: 200}, dispatch.ErrInvalid, "does not wait")
	f.finish("x", 200)
	f.refuse(dispatch.Finish{ID: "x", Attempt: 1, Context: 200}, dispatch.ErrUnknown, `"x"`)
	f.empty()
}

func TestBadConfigurations(t *testing.T) {
	for _, change := range []func(*dispatch.Config){
		func(c *dispatch.Config) { c.Policy = "other" }, func(c *dispatch.Config) { c.Coefficient = 0 },
		func(c *dispatch.Config) { c.Coefficient = math.NaN() }, func(c *dispatch.Config) { c.Margin = math.NaN() },
		func(c *dispatch.Config) { c.Margin = -1 }, func(c *dispatch.Config) { c.Longest = 0 }, func(c *dispatch.Config) { c.Longest = math.MaxInt },
		func(c *dispatch.Config) { c.Hold = -1 }, func(c *dispatch.Config) { c.Cost.MaxRecompute = math.NaN() }, func(c *dispatch.Config) { c.Cost.Knee = -1 },
	} {
		cfg := dispatch.DefaultConfig()
		change(&cfg)
		if _, err := dispatch.New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

func TestTooLargeIsRefusedAtOnce(t *testing.T) {
	for _, policy := range policies {
		f := newFleet(t, func(c *dispatch.Config) { c.Policy = policy })
		early := trajectory("early", "p")
		f.submit(early) // no engine yet: it may wait for one
		out := f.do(dispatch.Join{Engine: "small", Capacity: 1099})
		if len(out) != 1 || out[0].Kind != dispatch.Refuse || out[0].ID != "early" {
			t.Errorf("%s: decisions %+v, want the refusal of what waited", policy, out)
		}
		f.refuse(dispatch.Submit{Trajectories: []dispatch.Trajectory{trajectory("x", "p")}}, dispatch.ErrTooLarge, "1100 tokens, the largest engine holds 1099")
		long := trajectory("long", "p")
		long.Limit = 1 << 20
		f.refuse(dispatch.Submit{Trajectories: []dispatch.Trajectory{long}}, dispatch.ErrTooLarge, "longest")
		f.do(dispatch.Join{Engine: "large", Capacity: 1100})
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
	f.do(dispatch.Join{Engine: "a", Capacity: 100_000})
	f.do(dispatch.Join{Engine: "b", Capacity: 100_000})
	f.submit(trajectory("x", "p"))
	home := f.on["x"]
	for context := 200; context <= 500; context += 100 {
		f.do(dispatch.Pause{ID: "x", Attempt: f.attempt["x"], Context: context})
		if used := f.s.Used(home); used != int64(context) {
			t.Errorf("the engine holds %d tokens while the tool runs, want %d", used, context)
		}
		f.do(dispatch.Resume{ID: "x", Attempt: f.attempt["x"], Context: context + 10})
		if f.on["x"] != home {
			t.Fatalf("it went from %s to %s with nothing waiting", home, f.on["x"])
		}
	}
	f.finish("x", 600)
	f.empty()
}

func TestCacheIsGivenUpWhenOthersNeedIt(t *testing.T) {
	f := newFleet(t, nil)
	f.do(dispatch.Join{Engine: "a", Capacity: 1100})
	f.submit(trajectory("x", "p"))
	f.do(dispatch.Pause{ID: "x", Attempt: 1, Context: 900})
	f.submit(trajectory("y", "q"))
	if f.on["y"] != "" {
		t.Fatal("two are on an engine that holds one")
	}
	f.now += 4e9
	f.do(dispatch.Advance{Engine: "a", Passes: 1})
	if f.on["x"] == "" {
		t.Fatal("the cache was given up after 4 s, want it held for 5")
	}
	f.now += 2e9
	f.do(dispatch.Advance{Engine: "a", Passes: 2})
	if f.on["x"] != "" || f.on["y"] != "a" {
		t.Fatalf("engines are %v, want y in place of x", f.on)
	}
	f.do(dispatch.Resume{ID: "x", Attempt: f.attempt["x"], Context: 910})
	f.finish("y", 300)
	if f.on["x"] != "a" {
		t.Fatal("what gave up its cache does not go on")
	}
	f.finish("x", 1000)
	f.empty()
}

func TestRunsShareTheFleet(t *testing.T) {
	for _, policy := range []dispatch.Policy{dispatch.Expected, dispatch.Oracle, dispatch.WorstCase} {
		f := newFleet(t, func(c *dispatch.Config) { c.Policy = policy })
		f.submit(several(400, "first", "p")...)
		f.submit(several(100, "second", "p")...)
		f.do(dispatch.Join{Engine: "a", Capacity: 50_000})
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
	f.do(dispatch.Join{Engine: "a", Capacity: 100_000})
	f.submit(trajectory("x", "p"), trajectory("y", "p"))
	f.do(dispatch.Join{Engine: "b", Capacity: 100_000})
	f.do(dispatch.Drain{Engine: "a"})
	f.submit(trajectory("z", "p"))
	if f.on["z"] != "b" {
		t.Errorf("a draining engine was given more: %v", f.on)
	}
	f.finish("y", 300)
	f.do(dispatch.Pause{ID: "x", Attempt: 1, Context: 300})
	out := f.do(dispatch.Resume{ID: "x", Attempt: 1, Context: 310})
	drained := false
	for _, d := range out {
		drained = drained || d.Kind == dispatch.Drained && d.Engine == "a"
	}
	if f.on["x"] != "b" || !drained {
		t.Errorf("decisions %+v: want x on b, and a drained", out)
	}
	f.do(dispatch.Leave{Engine: "a"})
	f.finish("x", 400)
	f.finish("z", 400)
	f.empty()
}

func TestLongProblemsGoFirst(t *testing.T) {
	f := newFleet(t, func(c *dispatch.Config) { c.Longest = 10_000 })
	f.do(dispatch.Join{Engine: "a", Capacity: 1 << 20})
	for i := range 64 { // problems with one rollout each, long and short ones
		id := fmt.Sprintf("past/%d", i)
		length := 1000 + 8000*(i%2)
		f.submit(dispatch.Trajectory{ID: id, Run: "r", Problem: []string{"short", "long"}[i%2], Prompt: 100, Limit: 10_000})
		f.finish(id, 100+length)
	}
	f.do(dispatch.Leave{Engine: "a"})
	var list []dispatch.Trajectory
	for i := range 20 {
		list = append(list, dispatch.Trajectory{ID: fmt.Sprintf("%d/%d", i%2, i), Run: "r", Problem: []string{"short", "long"}[i%2], Prompt: 100, Limit: 10_000, Step: 1})
	}
	f.submit(list...)
	var first []string
	for _, d := range f.do(dispatch.Join{Engine: "b", Capacity: 40_000}) {
		first = append(first, d.ID)
	}
	if len(first) < 2 || !strings.HasPrefix(first[0], "1/") || !strings.HasPrefix(first[1], "1/") {
		t.Errorf("started %q, want those of the long problem first", first)
	}
}

func TestMovesEvenOutTheTail(t *testing.T) {
	f := newFleet(t, func(c *dispatch.Config) {
		c.Policy, c.Cost.Base, c.Cost.Prefill, c.Cost.MaxRecompute, c.Cost.Knee = dispatch.Oracle, 1000, 1, 1, 0
	})
	f.do(dispatch.Join{Engine: "a", Capacity: 100_000})
	for i := range 8 {
		f.submit(dispatch.Trajectory{ID: fmt.Sprint(i), Run: "r", Problem: "p", Prompt: 100, Limit: 10_000, Length: 8000 + i})
	}
	f.do(dispatch.Join{Engine: "b", Capacity: 100_000})
	for passes := int64(64); passes <= 1024; passes += 64 {
		f.do(dispatch.Advance{Engine: "b", Passes: passes})
		f.do(dispatch.Advance{Engine: "a", Passes: passes})
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
	f.do(dispatch.Join{Engine: "a", Capacity: 100_000})
	f.submit(trajectory("x", "p"), trajectory("y", "p"))
	f.refuse(dispatch.Reject{ID: "x", Attempt: 7, Context: 150}, dispatch.ErrStale, "attempt 7")
	delete(f.on, "x")
	f.do(dispatch.Reject{ID: "x", Attempt: f.attempt["x"], Context: 150})
	f.submit(trajectory("z", "p"))
	if f.on["x"] != "" || f.on["z"] != "" {
		t.Fatalf("engines are %v: one that rejects was given more", f.on)
	}
	f.refuse(dispatch.Reject{ID: "x", Attempt: f.attempt["x"], Context: 150}, dispatch.ErrInvalid, "does not run")
	f.refuse(dispatch.Finish{ID: "x", Attempt: f.attempt["x"], Context: 150}, dispatch.ErrInvalid, "waits for an engine")
	f.do(dispatch.Advance{Engine: "a", Passes: 1})
	if f.on["x"] != "a" || f.on["z"] != "a" {
		t.Fatalf("engines are %v after a report, want all on a", f.on)
	}
	delete(f.on, "x")
	f.do(dispatch.Reject{ID: "x", Attempt: f.attempt["x"], Context: 160})
	f.finish("y", 300)
	if f.on["x"] != "a" {
		t.Fatal("the end of another trajectory makes room")
	}
	f.do(dispatch.Pause{ID: "x", Attempt: f.attempt["x"], Context: 200})
	f.finish("x", 200) // after a turn, not in one
	f.finish("z", 200)
	f.empty()
}

// TestContextsOfAnEngineAreBounded: an engine may hold many tokens, and few of one trajectory.
func TestContextsOfAnEngineAreBounded(t *testing.T) {
	for _, policy := range policies {
		f := newFleet(t, func(c *dispatch.Config) { c.Policy = policy })
		f.refuse(dispatch.Join{Engine: "a", Capacity: 100_000, Longest: -1}, dispatch.ErrInvalid, "at least 1")
		f.do(dispatch.Join{Engine: "a", Capacity: 100_000, Longest: 1099})
		f.refuse(dispatch.Submit{Trajectories: []dispatch.Trajectory{trajectory("x", "p")}}, dispatch.ErrTooLarge, "holds 1099")
		f.do(dispatch.Join{Engine: "b", Capacity: 2000, Longest: 1100})
		f.submit(trajectory("x", "p"))
		if f.on["x"] != "b" {
			t.Errorf("%s: it runs on %q, want b", policy, f.on["x"])
		}
		f.finish("x", 600)
		f.empty()
	}
}
