package scheduler_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/inference/scheduler"
)

// chaosFleet plays engines that die, join and lie, and knows what each trajectory is at.
type chaosFleet struct {
	*fleet
	r       *rand.Rand
	alive   []string
	passes  map[string]int64
	context map[string]int
	state   map[string]string // "waiting", "running", "paused"
	ended   map[string]int
	names   int
	faults  int
	// The events and decisions so far, to play again.
	events    []scheduler.Event
	clocks    []time.Duration
	decisions []scheduler.Decision
}

func newChaosFleet(t *testing.T, policy scheduler.Policy, seed uint64) *chaosFleet {
	return &chaosFleet{
		fleet: newFleet(t, func(c *scheduler.Config) { c.Policy = policy }), r: rand.New(rand.NewPCG(seed, 1)),
		passes: map[string]int64{}, context: map[string]int{}, state: map[string]string{}, ended: map[string]int{},
	}
}

// send handles an event and checks each decision against what is so.
func (c *chaosFleet) send(e scheduler.Event) error {
	c.now += time.Duration(c.r.Int64N(1e9))
	c.events, c.clocks = append(c.events, e), append(c.clocks, c.now)
	out, err := c.s.Handle(c.now, e)
	c.decisions = append(c.decisions, out...)
	for _, d := range out {
		switch d.Kind {
		case scheduler.Start:
			if c.state[d.ID] != "waiting" {
				c.Fatalf("%+v, but the trajectory is %s", d, c.state[d.ID])
			}
			if !slices.Contains(c.alive, d.Engine) {
				c.Fatalf("%+v, but the engine is gone", d)
			}
			if d.Attempt <= c.attempt[d.ID] {
				c.Fatalf("%+v after attempt %d", d, c.attempt[d.ID])
			}
			c.state[d.ID], c.on[d.ID], c.attempt[d.ID] = "running", d.Engine, d.Attempt
		case scheduler.Stop:
			if c.state[d.ID] != "running" || c.on[d.ID] != d.Engine {
				c.Fatalf("%+v, but it is %s on %q", d, c.state[d.ID], c.on[d.ID])
			}
			c.state[d.ID] = "waiting"
			delete(c.on, d.ID)
		case scheduler.Drop:
			if c.state[d.ID] == "running" || c.on[d.ID] != d.Engine {
				c.Fatalf("%+v, but it is %s on %q", d, c.state[d.ID], c.on[d.ID])
			}
			delete(c.on, d.ID)
		case scheduler.Refuse:
			c.Fatalf("%+v: every engine is large enough", d)
		case scheduler.Drained:
		}
	}
	return err
}

func (c *chaosFleet) must(e scheduler.Event) {
	c.Helper()
	if err := c.send(e); err != nil {
		c.Fatal(err)
	}
}

func (c *chaosFleet) join() {
	c.names++
	name := fmt.Sprintf("e%d", c.names)
	c.alive = append(c.alive, name)
	c.passes[name] = 0
	c.must(scheduler.Join{Engine: name, Capacity: 2000 + c.r.Int64N(20_000)})
}

// die takes an engine away with what it ran.
func (c *chaosFleet) die() {
	i := c.r.IntN(len(c.alive))
	name := c.alive[i]
	c.alive = slices.Delete(c.alive, i, i+1)
	for id, on := range c.on {
		if on != name {
			continue
		}
		if c.state[id] == "running" {
			c.state[id] = "waiting"
		}
		delete(c.on, id)
	}
	c.must(scheduler.Leave{Engine: name})
}

// pick chooses a trajectory in a state, by its name's order.
func (c *chaosFleet) pick(state string) (string, bool) {
	var ids []string
	for id, s := range c.state {
		if s == state {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return "", false
	}
	slices.Sort(ids)
	return ids[c.r.IntN(len(ids))], true
}

// fault does one thing that goes wrong. Lies must be refused.
func (c *chaosFleet) fault() {
	c.faults++
	engine := "none"
	if len(c.alive) > 0 {
		engine = c.alive[c.r.IntN(len(c.alive))]
	}
	id, running := c.pick("running")
	lies := []scheduler.Event{
		scheduler.Join{Engine: engine, Capacity: 0}, scheduler.Advance{Engine: engine, Passes: -1}, scheduler.Advance{Engine: engine, Passes: math.MaxInt64},
		scheduler.Advance{Engine: engine, Passes: c.passes[engine] + 1, Used: math.NaN()}, scheduler.Leave{Engine: "never"}, scheduler.Finish{ID: "never"},
		scheduler.Finish{ID: id, Attempt: c.attempt[id] - 1, Context: 500}, scheduler.Finish{ID: id, Attempt: c.attempt[id], Context: 1 << 30},
		scheduler.Pause{ID: id, Attempt: c.attempt[id] + 1, Context: 500}, scheduler.Resume{ID: id, Attempt: c.attempt[id], Context: 500},
	}
	if running {
		lies = append(lies, scheduler.Submit{Trajectories: []scheduler.Trajectory{trajectory(id, "p")}})
	}
	switch c.r.IntN(5) {
	case 0:
		if len(c.alive) > 0 {
			c.die()
		}
	case 1:
		c.join()
	case 2:
		if len(c.alive) > 0 && engine != "none" {
			c.must(scheduler.Advance{Engine: engine, Passes: c.passes[engine] + 5000}) // a leap
			c.passes[engine] += 5000
		}
	default:
		lie := lies[c.r.IntN(len(lies))]
		before := len(c.decisions)
		if err := c.send(lie); err == nil || len(c.decisions) != before {
			c.Fatalf("%+v was believed", lie)
		}
	}
}

// work does one thing that goes right.
func (c *chaosFleet) work() {
	switch c.r.IntN(4) {
	case 0:
		if len(c.alive) > 0 {
			name := c.alive[c.r.IntN(len(c.alive))]
			c.passes[name] += c.r.Int64N(200)
			c.must(scheduler.Advance{Engine: name, Passes: c.passes[name], Used: 0.5})
		}
	case 1:
		if id, ok := c.pick("paused"); ok {
			c.state[id] = "waiting"
			c.context[id] = min(1099, c.context[id]+10)
			c.must(scheduler.Resume{ID: id, Attempt: c.attempt[id], Context: c.context[id]})
		}
	case 2:
		if id, ok := c.pick("running"); ok {
			c.state[id] = "paused"
			c.context[id] = min(1099, c.context[id]+c.r.IntN(300))
			c.must(scheduler.Pause{ID: id, Attempt: c.attempt[id], Context: c.context[id]})
		}
	case 3:
		if id, ok := c.pick("running"); ok {
			delete(c.state, id)
			delete(c.on, id)
			c.ended[id]++
			c.must(scheduler.Finish{ID: id, Attempt: c.attempt[id], Context: min(1100, c.context[id]+1)})
		}
	}
}

// TestNothingIsLostWhileEnginesDieJoinAndLie injects 1,000 faults into each policy. Each
// trajectory ends once, and nothing stays reserved.
func TestNothingIsLostWhileEnginesDieJoinAndLie(t *testing.T) {
	for _, policy := range policies {
		t.Run(string(policy), func(t *testing.T) {
			c := newChaosFleet(t, policy, 7)
			const total = 200
			var list []scheduler.Trajectory
			for i := range total {
				tr := trajectory(fmt.Sprint(i), fmt.Sprint(i/16))
				tr.Run, tr.Step, tr.Length = []string{"one", "two"}[i%2], i/100, 1+(i*37)%1000
				list = append(list, tr)
				c.state[tr.ID], c.context[tr.ID] = "waiting", 100
			}
			c.join()
			c.join()
			c.must(scheduler.Submit{Trajectories: list})
			for c.faults < 1000 {
				if c.r.IntN(2) == 0 || len(c.ended) > total*9/10 {
					c.fault()
				} else {
					c.work()
				}
			}
			c.join()
			for range 200_000 {
				if len(c.ended) == total {
					break
				}
				c.work()
			}
			for _, tr := range list {
				if c.ended[tr.ID] != 1 {
					t.Errorf("trajectory %s ended %d times and is %q", tr.ID, c.ended[tr.ID], c.state[tr.ID])
				}
			}
			c.empty()
			if st := c.s.Stats(); st.Submitted != total || st.Finished != total || st.Reserved != 0 {
				t.Errorf("stats are %+v", st)
			}
			c.playAgain(policy)
		})
	}
}

// playAgain gives the same events to another scheduler and wants the same decisions.
func (c *chaosFleet) playAgain(policy scheduler.Policy) {
	cfg := scheduler.DefaultConfig()
	cfg.Policy = policy
	s, err := scheduler.New(cfg)
	if err != nil {
		c.Fatal(err)
	}
	var got []scheduler.Decision
	for i, e := range c.events {
		out, _ := s.Handle(c.clocks[i], e) // lies are refused again
		got = append(got, out...)
	}
	if diff := cmp.Diff(c.decisions, got); diff != "" {
		c.Errorf("equal events gave other decisions:\n%s", diff)
	}
}
