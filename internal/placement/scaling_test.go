package placement_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/placement"
)

var scalingBegan = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// nodes simulates sandbox nodes of 8 slots under a load of calls that take a second. A
// node that is asked for answers 15 s later; one that is told to go finishes its calls.
type nodes struct {
	count   int
	starts  []time.Duration // when nodes that were asked for will answer
	serving int
	queue   float64 // calls that wait
}

// second lets calls arrive and be served, and returns the load then.
func (n *nodes) second(at time.Duration, arrivals float64) placement.Load {
	for len(n.starts) > 0 && n.starts[0] <= at {
		n.starts, n.serving = n.starts[1:], n.serving+1
	}
	slots := 8 * n.serving
	demand := n.queue + arrivals
	served := math.Min(demand, float64(slots))
	n.queue = demand - served
	return placement.Load{
		Job: "sandbox", Count: n.count, Answering: n.serving, Slots: slots, Busy: int(served), Waiting: int(math.Ceil(n.queue)),
		WaitSeconds: n.queue / math.Max(1, float64(slots)),
	}
}

func (n *nodes) scale(at time.Duration, to int) {
	for ; n.count < to; n.count++ {
		n.starts = append(n.starts, at+15*time.Second)
	}
	for ; n.count > to; n.count-- {
		if len(n.starts) > 0 {
			n.starts = n.starts[:len(n.starts)-1]
			continue
		}
		n.serving--
	}
}

// TestOneToSixToOne: under a load that rises to 32 calls a second for 20 minutes and
// falls again, a group of one becomes six and one again. Nothing waits long but while the
// nodes start, and no more than a node goes at a time.
func TestOneToSixToOne(t *testing.T) {
	rule := placement.Rule{Job: "sandbox", Kind: placement.BySlots, Least: 1, Most: 6}
	var state placement.State
	n := nodes{count: 1, serving: 1}
	most, last := 1, time.Duration(0)
	var down []time.Duration
	for at := time.Duration(0); at < 2*time.Hour; at += time.Second {
		arrivals := 3.0
		if at >= 10*time.Minute && at < 30*time.Minute {
			arrivals = 32
		}
		load := n.second(at, arrivals)
		s, ok := rule.Decide(scalingBegan.Add(at), &state, load)
		if at > 11*time.Minute && load.WaitSeconds > 0.5 {
			t.Errorf("at %s with %d nodes: %d calls wait %.1f s", at, n.serving, load.Waiting, load.WaitSeconds)
		}
		if !ok {
			continue
		}
		if s.From != n.count || s.Reason == "" || s.Figures["slots"] == 0 || s.To < 1 || s.To > 6 {
			t.Errorf("at %s: %s", at, s)
		}
		if s.To < s.From {
			down = append(down, at-last)
			if s.From-s.To != 1 || at < 30*time.Minute {
				t.Errorf("at %s: %s", at, s)
			}
		} else if at > 11*time.Minute {
			t.Errorf("at %s it goes up: %s", at, s)
		}
		last = at
		n.scale(at, s.To)
		most = max(most, n.count)
	}
	if most != 6 || n.count != 1 || len(down) != 5 {
		t.Errorf("at most %d nodes, %d in the end, %d went", most, n.count, len(down))
	}
	if len(down) > 1 && slices.Min(down[1:]) < 5*time.Minute {
		t.Errorf("nodes went after %v", down)
	}
}

func TestDecide(t *testing.T) {
	slots := placement.Rule{Job: "sandbox", Kind: placement.BySlots, Least: 1, Most: 10}
	engines := placement.Rule{Job: "engine-a", Group: "engine", Kind: placement.BySlots, Least: 1, Most: 4, Target: 1}
	control := placement.Rule{Job: "control", Kind: placement.ByBacklog, Least: 1, Most: 4}
	ago := func(d time.Duration) time.Time { return scalingBegan.Add(-d) }
	for _, c := range []struct {
		name  string
		rule  placement.Rule
		state placement.State
		load  placement.Load
		to    int
		why   string
	}{
		{"as wanted", slots, placement.State{}, placement.Load{Count: 2, Answering: 2, Slots: 16, Busy: 10}, 2, ""},
		{"all at once", slots, placement.State{}, placement.Load{Count: 1, Answering: 1, Slots: 8, Busy: 8, Waiting: 20}, 5, "load 3.50 of 0.70"},
		{"no further than the bounds", slots, placement.State{}, placement.Load{Count: 1, Answering: 1, Slots: 8, Busy: 8, Waiting: 800}, 10, "load"},
		{"what is on its way is not asked for again", slots, placement.State{}, placement.Load{Count: 5, Answering: 1, Slots: 8, Busy: 8, Waiting: 19}, 5, ""},
		{"calls wait though slots are free", slots, placement.State{}, placement.Load{Count: 2, Answering: 2, Slots: 16, Busy: 9, Waiting: 1, WaitSeconds: 2}, 3, "slowest twentieth"},
		{"calm has just begun", slots, placement.State{}, placement.Load{Count: 3, Answering: 3, Slots: 24, Busy: 3}, 3, ""},
		{"calm for long", slots, placement.State{Spare: ago(5 * time.Minute)}, placement.Load{Count: 3, Answering: 3, Slots: 24, Busy: 3}, 2, "for 5m0s"},
		{"nodes in use stay", slots, placement.State{Spare: ago(time.Hour)}, placement.Load{Count: 3, Answering: 3, Slots: 24, Busy: 3, InUse: 3}, 3, ""},
		{"nobody answers", slots, placement.State{Spare: ago(time.Hour)}, placement.Load{Count: 3, Waiting: 9}, 3, ""},
		{"nothing is known", slots, placement.State{Spare: ago(time.Hour)}, placement.Load{Count: 3, Unknown: "the gateway does not answer"}, 3, ""},
		{"below the bounds", slots, placement.State{}, placement.Load{Count: 0}, 1, "bounds"},
		{"above the bounds", slots, placement.State{}, placement.Load{Count: 12}, 10, "bounds"},
		{"trajectories wait", engines, placement.State{}, placement.Load{Count: 1, Answering: 1, Slots: 32, Busy: 32, Waiting: 70}, 4, "load"},
		{"a backlog for a moment", control, placement.State{}, placement.Load{Count: 1, Answering: 1, Waiting: 5, WaitSeconds: 4}, 1, ""},
		{"a backlog for long", control, placement.State{Late: ago(15 * time.Second)}, placement.Load{Count: 1, Answering: 1, Waiting: 5, WaitSeconds: 4}, 2, "waited 4.0 s"},
		{"and another is on its way", control, placement.State{Late: ago(time.Minute)}, placement.Load{Count: 2, Answering: 1, Waiting: 5, WaitSeconds: 4}, 2, ""},
		{"no backlog, and busy", control, placement.State{Spare: ago(time.Hour)}, placement.Load{Count: 2, Answering: 2, Slots: 20, Busy: 9}, 2, ""},
		{"no backlog, and idle", control, placement.State{Spare: ago(time.Hour)}, placement.Load{Count: 2, Answering: 2, Slots: 20, Busy: 1}, 1, "no task waits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := c.rule.Decide(scalingBegan, &c.state, c.load)
			if got.To != c.to || ok != (c.to != c.load.Count) || ok && !strings.Contains(got.Reason, c.why) {
				t.Errorf("%s, %v; want %d for %q", got, ok, c.to, c.why)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	got := placement.Rule{Kind: "x", Least: 3, Most: 2, Target: 2}.Check()
	want := []string{"job: is missing", `.kind: is "x", want "slots" or "backlog"`, ": is 3 to 2, want 0 <= least <= most and most at least 1", ".target: is 2, want above 0 and at most 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := (placement.Rule{Job: "a", Kind: placement.ByBacklog, Most: 1}).Check(); got != nil {
		t.Errorf("a good rule: %v", got)
	}
}
