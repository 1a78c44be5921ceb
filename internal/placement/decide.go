package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Do is the kind of a Decision.
type Do string

// The decisions.
const (
	// Start registers the jobs of a run. Answer: Started.
	Start Do = "start"
	// Stop tells all jobs of a run to end. Answer: Stopped.
	Stop Do = "stop"
	// Shrink takes from a run the engines that it has beyond its need. Answer: Shrunk.
	Shrink Do = "shrink"
	// Grant tells a run that all its instances run.
	Grant Do = "grant"
	// Yield asks a run to make room: at its next safe point, after a save.
	Yield Do = "yield"
	// Tell tells a run what it waits for.
	Tell Do = "tell"
	// Ask asks a run that has instances on the cluster and no tenant for its request.
	Ask Do = "ask"
	// CloseNode keeps new instances away from a node, EmptyNode ends what is left there,
	// OpenNode lets instances on it again. Answer: Moved.
	CloseNode Do = "close-node"
	EmptyNode Do = "empty-node"
	OpenNode  Do = "open-node"
)

// Decision is one thing to be done. Until it is answered it is decided again.
type Decision struct {
	Do     Do     `json:"do"`
	Run    string `json:"run,omitempty"`
	Holder string `json:"holder,omitempty"`
	Epoch  int    `json:"epoch,omitempty"`
	Node   string `json:"node,omitempty"`
	// Why is for people.
	Why string `json:"why,omitempty"`
	// Now interrupts what is in flight; Lost says that no instance is left that could save.
	Now  bool `json:"now,omitempty"`
	Lost bool `json:"lost,omitempty"`
	// Jobs are those to be started, or the one to be shrunk.
	Jobs []Job `json:"jobs,omitempty"`
}

// toldGranted is the last message to a run that has its room.
const toldGranted = "granted"

// Decide returns the decisions that are due, in their order. The caller answers every
// decision besides Grant, Yield, Tell and Ask; one is not decided again meanwhile if the
// caller waits for its answer.
func (a *Admission) Decide(now time.Time) []Decision {
	c := chooser{a: a, seen: a.snapshot(), policy: a.Policy.withDefaults(), now: now}
	var out []Decision
	out = append(out, c.moveNodes()...)
	c.yieldDrained()
	c.evictUnresponsive()
	out = append(out, c.stopLeaving()...)
	out = append(out, c.admit()...)
	out = append(out, c.notify()...)
	return out
}

// chooser chooses what is to be done at one time.
type chooser struct {
	a      *Admission
	seen   snapshot
	policy Policy
	now    time.Time
}

// NeedsLook reports whether a decision waits for a newer look at the cluster.
func (a *Admission) NeedsLook() bool {
	return a.Stale || slices.ContainsFunc(a.Tenants, func(t Tenant) bool {
		return t.Phase == Starting || t.Phase == Leaving || !t.Short.IsZero()
	})
}

func (c chooser) moveNodes() (out []Decision) {
	for _, d := range c.a.Drains {
		switch {
		case d.Over:
			out = append(out, Decision{Do: OpenNode, Node: d.Node, Why: "the drain is over"})
		case !d.Closed:
			out = append(out, Decision{Do: CloseNode, Node: d.Node, Why: drainWhy(d)})
		case !d.Empty && !c.a.Stale && len(c.tenantsOn(d.Node)) == 0:
			out = append(out, Decision{Do: EmptyNode, Node: d.Node, Why: drainWhy(d)})
		}
	}
	return out
}

func drainWhy(d Drain) string {
	why := "drain"
	if d.Reason != "" {
		why += ": " + d.Reason
	}
	if d.By != "" {
		why += " (by " + d.By + ")"
	}
	return why
}

// tenantsOn returns the runs with living instances on a node.
func (c chooser) tenantsOn(node string) (runs []string) {
	for _, n := range c.seen.nodes {
		if n.ID != node || n.State == NodeDown {
			continue
		}
		for _, t := range c.a.Tenants {
			if slices.ContainsFunc(n.Instances, func(m Instance) bool { return m.State != InstanceEnded && of(t.Run)(m) }) {
				runs = append(runs, t.Run)
			}
		}
	}
	return runs
}

func (c chooser) yieldDrained() {
	for _, d := range c.a.Drains {
		if d.Over {
			continue
		}
		for _, run := range c.tenantsOn(d.Node) {
			if t := c.a.find(run); t.Phase == Holding && t.Told == toldGranted {
				t.enter(c.now, Yielding, fmt.Sprintf("node %s is emptied, %s", d.Node, drainWhy(d)))
			}
		}
	}
}

// evictUnresponsive takes the room of runs that were urged to make room and do not answer.
func (c chooser) evictUnresponsive() {
	for i := range c.a.Tenants {
		if t := &c.a.Tenants[i]; t.Phase == Yielding && c.now.Sub(t.Since) >= 2*c.policy.YieldPatience {
			t.enter(c.now, Leaving, "")
		}
	}
}

// stopLeaving stops the jobs of runs that have left.
func (c chooser) stopLeaving() (out []Decision) {
	for _, t := range c.a.Tenants {
		if t.Phase == Leaving && !t.Done {
			out = append(out, Decision{Do: Stop, Run: t.Run, Holder: t.Holder, Epoch: t.Epoch})
		}
	}
	return out
}

// admit starts the first run of the queue that fits, or has others make room for it.
func (c chooser) admit() (out []Decision) {
	ready := !c.a.Stale && len(c.seen.nodes) > 0 && !slices.ContainsFunc(c.a.Tenants, func(t Tenant) bool { return t.Phase == Starting })
	head := ""
	for _, q := range c.a.Queue(c.now) {
		t := c.a.find(q.Run)
		if head != "" && !c.policy.Backfill {
			t.Why = fmt.Sprintf("run %s is before it", head)
			continue
		}
		if len(c.seen.nodes) == 0 {
			t.Why = "the cluster has not been looked at yet"
			continue
		}
		jobs := t.Need.Jobs(t.Run, t.Epoch+1, t.Priority)
		if most := pack(jobs, c.seen.candidates(all)); !most.whole() {
			t.Why = "the cluster is too small for it now: " + most.String()
			continue // it holds up no other run
		}
		if c.now.Before(t.NotBefore) {
			continue // the scheduler knows better, and so it holds up no other run
		}
		switch free := pack(jobs, c.seen.candidates(none)); {
		case free.whole() && ready:
			t.enter(c.now, Starting, "its instances start")
			t.Epoch++
			t.Rank = c.a.urgency(c.now, &q)
			out = append(out, Decision{Do: Start, Run: t.Run, Holder: t.Holder, Epoch: t.Epoch, Jobs: jobs})
			ready = false
		case free.whole():
			t.Why = "another run is being started or stopped"
		case head == "":
			out = append(out, c.makeRoom(t, jobs, free)...)
		default:
			t.Why = fmt.Sprintf("run %s is before it, and %s", head, free)
		}
		if head == "" {
			head = t.Run
		}
	}
	return out
}

// makeRoom makes runs that count less give up their room for t, if that is enough.
func (c chooser) makeRoom(t *Tenant, jobs []Job, free packing) []Decision {
	var going []string
	for _, other := range c.a.Tenants {
		if other.Phase == Yielding || other.Phase == Leaving {
			going = append(going, other.Run)
		}
	}
	t.Why = free.String()
	if grown := c.shrinkGrown(); len(grown) > 0 {
		t.Why += "; other runs have more engines than they need, which make room"
		return grown
	}
	if pack(jobs, c.seen.candidates(of(going...))).whole() {
		t.Why += "; waits for " + strings.Join(going, ", ") + " to make room"
		return nil
	}
	if c.policy.NoPreemption {
		return nil
	}
	victims := c.victims(t, jobs, going)
	for _, run := range victims {
		c.a.find(run).enter(c.now, Yielding, fmt.Sprintf("run %s (priority %d) needs the room", t.Run, t.Priority))
	}
	if len(victims) > 0 {
		t.Why += "; " + strings.Join(victims, ", ") + " makes room"
	}
	return nil
}

// shrinkGrown takes the engines back that runs have beyond their need.
func (c chooser) shrinkGrown() (out []Decision) {
	if c.a.Stale {
		return nil // it may have been done
	}
	for _, t := range c.a.Tenants {
		if t.Phase != Holding || t.Need.Engine == nil {
			continue
		}
		for _, j := range t.Need.Jobs(t.Run, t.Epoch, t.Priority) {
			if j.Role == RoleEngine && c.seen.numRunning(j) > j.Instances {
				out = append(out, Decision{Do: Shrink, Run: t.Run, Epoch: t.Epoch, Jobs: []Job{j}, Why: "another run waits for room"})
			}
		}
	}
	return out
}

// victims are the runs that make room for t: those that count least, and of these the
// last that came; none where that would not be enough.
func (c chooser) victims(t *Tenant, jobs []Job, going []string) []string {
	var may []Tenant
	for _, other := range c.a.Tenants {
		if other.Phase == Holding && other.Told == toldGranted && c.rank(&other) > t.Priority {
			may = append(may, other)
		}
	}
	slices.SortStableFunc(may, func(a, b Tenant) int {
		return cmp.Or(-cmp.Compare(c.rank(&a), c.rank(&b)), -a.Since.Compare(b.Since), cmp.Compare(a.Run, b.Run))
	})
	var chosen []string
	enough := func(runs []string) bool {
		return pack(jobs, c.seen.candidates(of(slices.Concat(going, runs)...))).whole()
	}
	for _, v := range may {
		if enough(chosen) {
			break
		}
		chosen = append(chosen, v.Run)
	}
	if !enough(chosen) {
		return nil
	}
	for i := 0; i < len(chosen); { // a run that is not needed after all stays
		if rest := slices.Delete(slices.Clone(chosen), i, i+1); enough(rest) {
			chosen = rest
			continue
		}
		i++
	}
	return chosen
}

// rank returns what a holding run counts for: for a while the rank with which it was admitted, then its
// priority.
func (c chooser) rank(t *Tenant) int {
	if c.now.Sub(t.Since) < c.policy.Tenure {
		return min(t.Rank, t.Priority)
	}
	return t.Priority
}

// notify lists what the runs do not know yet.
func (c chooser) notify() (out []Decision) {
	patience := c.policy.YieldPatience
	for i := range c.a.Tenants {
		t := &c.a.Tenants[i]
		d := Decision{Do: Tell, Run: t.Run, Holder: t.Holder, Epoch: t.Epoch, Why: t.Why}
		told := string(t.Phase) + ": " + t.Why
		switch t.Phase {
		case Holding:
			d.Do, told = Grant, toldGranted
		case Yielding:
			t.Urged = t.Urged || t.Lost || c.now.Sub(t.Since) >= patience
			d.Do, d.Now, d.Lost = Yield, t.Urged, t.Lost
			if t.Urged {
				told = "now: " + t.Why
			}
		case Leaving:
			continue
		case Waiting, Starting:
		}
		if t.Told != told {
			t.Told = told
			out = append(out, d)
		}
	}
	return append(out, c.askOrphans()...)
}

// askOrphans asks runs that have instances and no tenant for their requests, now and then.
func (c chooser) askOrphans() (out []Decision) {
	for _, n := range c.seen.nodes {
		for _, m := range n.Instances {
			_, run, ok := strings.Cut(m.Job, "-")
			if !ok || !m.Current() || c.a.find(run) != nil {
				continue
			}
			i := slices.IndexFunc(c.a.Orphans, func(s Orphan) bool { return s.Run == run })
			if i < 0 {
				c.a.Orphans = append(c.a.Orphans, Orphan{Run: run})
				i = len(c.a.Orphans) - 1
			}
			if c.now.Sub(c.a.Orphans[i].Asked) >= askPause {
				c.a.Orphans[i].Asked = c.now
				out = append(out, Decision{Do: Ask, Run: run, Epoch: m.Epoch, Why: "it has instances, and the cluster has forgotten it"})
			}
		}
	}
	return out
}

// NextLook is when time alone would change a decision; zero for never.
func (a *Admission) NextLook(now time.Time) time.Time {
	p := a.Policy.withDefaults()
	var next time.Time
	consider := func(at time.Time) {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, t := range a.Tenants {
		switch {
		case t.Phase == Starting:
			consider(t.Since.Add(p.StartPatience))
		case t.Phase == Yielding && !t.Urged:
			consider(t.Since.Add(p.YieldPatience))
		case t.Phase == Yielding:
			consider(t.Since.Add(2 * p.YieldPatience))
		case t.Phase == Waiting:
			consider(t.NotBefore)
		}
		if !t.Short.IsZero() {
			consider(t.Short.Add(p.LossGrace))
		}
	}
	return next
}
