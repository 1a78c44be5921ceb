package workflows_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"temper/internal/placement"
	"temper/workflows"
)

// season is a time on a cluster in which nodes are lost, drained for maintenance, and
// urgent runs come.
type season struct {
	nodes, days, runs, steps int
	// lostPerDay is the number of nodes lost a day, drainedPerDay of those that are drained.
	lostPerDay, drainedPerDay float64
	seed                      uint64
}

const (
	seasonSampling = 2 * time.Hour
	seasonTraining = time.Hour
	gpusPerNode    = 8
)

// bill is what a season has cost, in hours of GPUs.
type bill struct {
	held, useful, lost    float64
	losses, drains, moved int
}

// play lives through a season with the real workflows and returns what it has cost.
func (s season) play(t *testing.T) (b bill) {
	t.Helper()
	r := rand.New(rand.NewPCG(s.seed, 64))
	c := newTownAt(t, s.nodes, s.steps, seasonSampling, seasonTraining)
	c.env.SetTestTimeout(20 * time.Minute)
	c.service.Settings.LookEvery = 10 * time.Minute
	c.service.Settings.Policy = placement.Policy{LossGrace: 5 * time.Minute, YieldPatience: 6 * time.Hour}
	length := time.Duration(s.days) * 24 * time.Hour
	at := func() time.Duration { return time.Duration(r.Int64N(int64(length))) }
	node := func() string { return fmt.Sprintf("node-%03d", r.IntN(s.nodes)) }
	size := map[string]int{}
	var arrivals []arrival
	for i := range s.runs {
		id := fmt.Sprintf("run-%02d", i)
		size[id] = 1 + r.IntN(max(1, s.nodes/4))
		arrivals = append(arrivals, arrival{After: at() / 2, Input: asks(id, 1+r.IntN(5), size[id])})
	}
	for range int(s.lostPerDay * float64(s.days)) {
		which := node()
		c.after(at(), func() {
			b.losses++
			b.lost += c.inFlight(which, size)
			c.cluster.LoseNode(which)
			c.after(8*time.Hour, func() { c.cluster.ReturnNode(which) })
		})
	}
	for range int(s.drainedPerDay * float64(s.days)) {
		which := node()
		c.after(at(), func() {
			b.drains++
			c.update(workflows.ClusterWorkflowID, workflows.CommandDrain, workflows.NodeCommand{Node: which, Reason: "maintenance"})
			c.after(10*time.Hour, func() {
				c.update(workflows.ClusterWorkflowID, workflows.CommandUndrain, workflows.NodeCommand{Node: which})
			})
		})
	}
	const sample = 30 * time.Minute
	var measure func()
	measure = func() { // one at a time: the environment takes few callbacks before it begins
		b.held += sample.Hours() * c.runningGPUs()
		if len(c.ends) < s.runs {
			c.after(sample, measure)
		}
	}
	c.after(sample, measure)
	c.run(arrivals...)
	for id, nodes := range size {
		var steps []int
		for n := range s.steps {
			steps = append(steps, n+1)
		}
		made := c.trained(id)
		slices.Sort(made)
		if !slices.Equal(slices.Compact(made), steps) || c.results[id].Policy.Version != int64(s.steps) {
			t.Errorf("run %s made steps %v, its policy is %d", id, made, c.results[id].Policy.Version)
		}
		b.useful += float64(s.steps) * (seasonSampling + seasonTraining).Hours() * float64(nodes*gpusPerNode)
	}
	for _, e := range c.w.events {
		if len(e) > 6 && e[:6] == "yield:" {
			b.moved++
		}
	}
	return b
}

// runningGPUs counts the devices that members hold.
func (c *town) runningGPUs() (n float64) {
	nodes, err := c.cluster.Nodes(c.Context())
	if err != nil {
		c.Error(err)
	}
	for _, node := range nodes {
		for _, m := range node.Instances {
			if m.State == placement.InstanceRunning {
				n += float64(m.Each.Devices["amd/gpu"])
			}
		}
	}
	return n
}

// inFlight is the work that the loss of a node costs: on the average half of what its
// run samples or trains at a time.
func (c *town) inFlight(node string, size map[string]int) (hours float64) {
	nodes, err := c.cluster.Nodes(c.Context())
	if err != nil {
		c.Error(err)
	}
	for _, n := range nodes {
		if n.ID != node {
			continue
		}
		for _, m := range n.Instances {
			for id, nodes := range size {
				if m.Current() && (m.Job == placement.JobID(placement.RoleTrainer, id) || m.Job == placement.JobID(placement.RoleEngine, id)) {
					hours += float64(nodes*gpusPerNode) * (seasonSampling + seasonTraining).Hours() / 4
				}
			}
		}
	}
	return hours
}

func (b bill) report(t *testing.T) {
	t.Helper()
	waste := b.held - b.useful + b.lost
	t.Logf("%d nodes lost, %d drained, %d times a run gave up its room; %.0f GPU-hours held, %.0f useful, %.0f lost in flight: %.1f %% wasted",
		b.losses, b.drains, b.moved, b.held, b.useful, b.lost, 100*waste/(b.held+b.lost))
	if waste < -0.02*b.held || waste > 0.25*b.held {
		t.Errorf("%.0f of %.0f GPU-hours are wasted", waste, b.held)
	}
	if b.losses == 0 || b.drains == 0 || b.moved == 0 {
		t.Error("nothing has happened")
	}
}

// TestAFewDays: nodes are lost and drained, urgent runs come, and no run is lost.
func TestAFewDays(t *testing.T) {
	s := season{nodes: 8, days: 4, runs: 10, steps: 12, lostPerDay: 2, drainedPerDay: 1.5, seed: 3}
	s.play(t).report(t)
}
