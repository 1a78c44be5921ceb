package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Do is what is to be done.
type Do string

// The decisions.
const (
	// Start registers the jobs of a run. Answer: Started.
	Start Do = "start"
	// Stop tells all jobs of a run to end. Answer: Stopped.
	Stop Do = "stop"
	// Shrink takes from a run the engines that it has beyond its need. Answer: Shrunk.
	Shrink Do = "shrink"
	// Grant tells a run that all its members run.
	Grant Do = "grant"
	// Yield asks a run to make room: at its next safe point, after a save.
	Yield Do = "yield"
	// Tell tells a run what it waits for.
	Tell Do = "tell"
	// Ask asks a run that is on the cluster, and that nobody knows, who it is.
	Ask Do = "ask"
	// CloseNode keeps new members away from a node, EmptyNode ends what is left there,
	// OpenNode lets members on it again. Answer: Moved.
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
	// Now interrupts what is in flight; Lost says that there is nobody left who could save.
	Now  bool `json:"now,omitempty"`
	Lost bool `json:"lost,omitempty"`
	// Jobs are those to be started, or the one to be shrunk.
	Jobs []Job `json:"jobs,omitempty"`
}

// toldGranted is what a run was told that works.
const toldGranted = "granted"

// Decide says what is to be done now, in this order. What it returns besides Grant,
// Yield, Tell and Ask is to be answered by the caller, and is not decided again meanwhile
// if the caller waits for that.
func (f *Floor) Decide(now time.Time) []Decision {
	d := decider{view{f}}
	var out []Decision
	out = append(out, d.moveNodes()...)
	d.yieldFromDrains(now)
	d.takeFromTheSilent(now)
	out = append(out, d.stopLeaving()...)
	out = append(out, d.admit(now)...)
	out = append(out, d.tell(now)...)
	return out
}

// decider chooses what is to be done.
type decider struct{ view }

// NeedsLook reports whether a decision waits for a newer look at the cluster.
func (f *Floor) NeedsLook() bool {
	return f.Stale || slices.ContainsFunc(f.Tenants, func(t Tenant) bool {
		return t.Phase == Starting || t.Phase == Leaving || !t.Short.IsZero()
	})
}

func (f decider) moveNodes() (out []Decision) {
	for _, d := range f.Drains {
		switch {
		case d.Over:
			out = append(out, Decision{Do: OpenNode, Node: d.Node, Why: "the drain is over"})
		case !d.Closed:
			out = append(out, Decision{Do: CloseNode, Node: d.Node, Why: drainWhy(d)})
		case !d.Empty && !f.Stale && len(f.tenantsOn(d.Node)) == 0:
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

// tenantsOn are the runs with living members on a node.
func (f view) tenantsOn(node string) (runs []string) {
	for _, n := range f.Nodes {
		if n.ID != node || n.State == NodeDown {
			continue
		}
		for _, t := range f.Tenants {
			if slices.ContainsFunc(n.Members, func(m Member) bool { return m.State != MemberEnded && of(t.Run)(m) }) {
				runs = append(runs, t.Run)
			}
		}
	}
	return runs
}

func (f decider) yieldFromDrains(now time.Time) {
	for _, d := range f.Drains {
		if d.Over {
			continue
		}
		for _, run := range f.tenantsOn(d.Node) {
			if t := f.find(run); t.Phase == Holding && t.Told == toldGranted {
				t.enter(now, Yielding, fmt.Sprintf("node %s is emptied, %s", d.Node, drainWhy(d)))
			}
		}
	}
}

// takeFromTheSilent takes the room of runs that were urged to make room and do not answer.
func (f decider) takeFromTheSilent(now time.Time) {
	for i := range f.Tenants {
		if t := &f.Tenants[i]; t.Phase == Yielding && now.Sub(t.Since) >= 2*f.Policy.withDefaults().YieldPatience {
			t.enter(now, Leaving, "")
		}
	}
}

// stopLeaving stops the jobs of runs that have left.
func (f decider) stopLeaving() (out []Decision) {
	for _, t := range f.Tenants {
		if t.Phase == Leaving && !t.Done {
			out = append(out, Decision{Do: Stop, Run: t.Run, Holder: t.Holder, Epoch: t.Epoch})
		}
	}
	return out
}

// admit starts the first run of the queue that fits, or has others make room for it.
func (f decider) admit(now time.Time) (out []Decision) {
	ready := !f.Stale && len(f.Nodes) > 0 && !slices.ContainsFunc(f.Tenants, func(t Tenant) bool { return t.Phase == Starting })
	head := ""
	for _, q := range f.Queue(now) {
		t := f.find(q.Run)
		if head != "" && !f.Policy.Backfill {
			t.Why = fmt.Sprintf("run %s is before it", head)
			continue
		}
		if len(f.Nodes) == 0 {
			t.Why = "the cluster has not been looked at yet"
			continue
		}
		jobs := t.Need.Jobs(t.Run, t.Epoch+1, t.Priority)
		if most := try(jobs, f.plots(everybody)); !most.whole() {
			t.Why = "the cluster is too small for it now: " + most.String()
			continue // it holds up nobody
		}
		if now.Before(t.NotBefore) {
			continue // the scheduler knows better, and so it holds up nobody
		}
		switch free := try(jobs, f.plots(nobody)); {
		case free.whole() && ready:
			t.enter(now, Starting, "its members start")
			t.Epoch++
			t.Rank = f.urgency(now, &q)
			out = append(out, Decision{Do: Start, Run: t.Run, Holder: t.Holder, Epoch: t.Epoch, Jobs: jobs})
			ready = false
		case free.whole():
			t.Why = "another run is being started or stopped"
		case head == "":
			out = append(out, f.makeRoom(now, t, jobs, free)...)
		default:
			t.Why = fmt.Sprintf("run %s is before it, and %s", head, free)
		}
		if head == "" {
			head = t.Run
		}
	}
	return out
}

// makeRoom has runs that count less make room for t, if that is enough.
func (f decider) makeRoom(now time.Time, t *Tenant, jobs []Job, free fit) []Decision {
	var going []string
	for _, other := range f.Tenants {
		if other.Phase == Yielding || other.Phase == Leaving {
			going = append(going, other.Run)
		}
	}
	t.Why = free.String()
	if grown := f.shrinkGrown(); len(grown) > 0 {
		t.Why += "; other runs have more engines than they need, which make room"
		return grown
	}
	if try(jobs, f.plots(of(going...))).whole() {
		t.Why += "; waits for " + strings.Join(going, ", ") + " to make room"
		return nil
	}
	if f.Policy.NoPreemption {
		return nil
	}
	victims := f.victims(now, t, jobs, going)
	for _, run := range victims {
		f.find(run).enter(now, Yielding, fmt.Sprintf("run %s (priority %d) needs the room", t.Run, t.Priority))
	}
	if len(victims) > 0 {
		t.Why += "; " + strings.Join(victims, ", ") + " makes room"
	}
	return nil
}

// shrinkGrown takes the engines back that runs have beyond their need.
func (f decider) shrinkGrown() (out []Decision) {
	if f.Stale {
		return nil // it may have been done
	}
	for _, t := range f.Tenants {
		if t.Phase != Holding || t.Need.Engine == nil {
			continue
		}
		for _, j := range t.Need.Jobs(t.Run, t.Epoch, t.Priority) {
			if j.Role == RoleEngine && f.numOnRecord(j) > j.Members {
				out = append(out, Decision{Do: Shrink, Run: t.Run, Epoch: t.Epoch, Jobs: []Job{j}, Why: "another run waits for room"})
			}
		}
	}
	return out
}

// victims are the runs that make room for t: those that count least, and of these the
// last that came; none where that would not be enough.
func (f decider) victims(now time.Time, t *Tenant, jobs []Job, going []string) []string {
	var may []Tenant
	for _, other := range f.Tenants {
		if other.Phase == Holding && other.Told == toldGranted && f.rank(now, &other) > t.Priority {
			may = append(may, other)
		}
	}
	slices.SortStableFunc(may, func(a, b Tenant) int {
		return cmp.Or(-cmp.Compare(f.rank(now, &a), f.rank(now, &b)), -a.Since.Compare(b.Since), cmp.Compare(a.Run, b.Run))
	})
	var chosen []string
	enough := func(runs []string) bool { return try(jobs, f.plots(of(slices.Concat(going, runs)...))).whole() }
	for _, v := range may {
		if enough(chosen) {
			break
		}
		chosen = append(chosen, v.Run)
	}
	if !enough(chosen) {
		return nil
	}
	for i := 0; i < len(chosen); { // whoever is not needed after all stays
		if rest := slices.Delete(slices.Clone(chosen), i, i+1); enough(rest) {
			chosen = rest
			continue
		}
		i++
	}
	return chosen
}

// rank is what a holding run counts for: what it was admitted with, for a while, and its
// priority after that.
func (f decider) rank(now time.Time, t *Tenant) int {
	if now.Sub(t.Since) < f.Policy.withDefaults().Tenure {
		return min(t.Rank, t.Priority)
	}
	return t.Priority
}

// tell lists what the runs do not know yet.
func (f decider) tell(now time.Time) (out []Decision) {
	patience := f.Policy.withDefaults().YieldPatience
	for i := range f.Tenants {
		t := &f.Tenants[i]
		d := Decision{Do: Tell, Run: t.Run, Holder: t.Holder, Epoch: t.Epoch, Why: t.Why}
		told := string(t.Phase) + ": " + t.Why
		switch t.Phase {
		case Holding:
			d.Do, told = Grant, toldGranted
		case Yielding:
			t.Urged = t.Urged || t.Lost || now.Sub(t.Since) >= patience
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
	return append(out, f.askStrangers(now)...)
}

// askStrangers asks the runs that are on the cluster and that nobody knows, now and then.
func (f decider) askStrangers(now time.Time) (out []Decision) {
	for _, n := range f.Nodes {
		for _, m := range n.Members {
			_, run, ok := strings.Cut(m.Job, "-")
			if !ok || !m.OnRecord() || f.find(run) != nil {
				continue
			}
			i := slices.IndexFunc(f.Strangers, func(s Stranger) bool { return s.Run == run })
			if i < 0 {
				f.Strangers = append(f.Strangers, Stranger{Run: run})
				i = len(f.Strangers) - 1
			}
			if now.Sub(f.Strangers[i].Asked) >= askPause {
				f.Strangers[i].Asked = now
				out = append(out, Decision{Do: Ask, Run: run, Epoch: m.Epoch, Why: "it has members, and the cluster has forgotten it"})
			}
		}
	}
	return out
}

// NextLook is when time alone would change a decision; zero for never.
func (f *Floor) NextLook(now time.Time) time.Time {
	p := f.Policy.withDefaults()
	var next time.Time
	consider := func(at time.Time) {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, t := range f.Tenants {
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
