package placement

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Phase is how far a run is.
type Phase string

// The phases of a run, in the order in which it meets them.
const (
	// Waiting runs have no room.
	Waiting Phase = "waiting"
	// Starting runs have jobs whose instances do not all run yet.
	Starting Phase = "starting"
	// Holding runs work.
	Holding Phase = "holding"
	// Yielding runs were asked to make room, and come to a safe point first.
	Yielding Phase = "yielding"
	// Leaving runs have given up their room, and their instances end.
	Leaving Phase = "leaving"
)

// Policy holds the settings of an operator. Zero values are the defaults.
type Policy struct {
	// StartPatience is how long a gang may take until all instances run; 0 is five minutes.
	// One that takes longer is stopped and waits again.
	StartPatience time.Duration `json:"start_patience_ns,omitempty"`
	// LossGrace is how long a gang may lack instances before it gives up its room, so that
	// the scheduler can replace one; 0 is a minute.
	LossGrace time.Duration `json:"loss_grace_ns,omitempty"`
	// YieldPatience is how long a run may take to its safe point when it is to make room;
	// after that its work in flight is interrupted, and after as long again, when the run does
	// not answer, its room is taken. 0 is two hours.
	YieldPatience time.Duration `json:"yield_patience_ns,omitempty"`
	// AgeEvery is the time after which a waiting run counts as one priority more urgent; 0
	// is a day. It keeps a stream of urgent runs from holding up the others for ever.
	AgeEvery time.Duration `json:"age_every_ns,omitempty"`
	// Tenure is how long a run that was admitted by its age keeps that urgency; 0 is an hour.
	Tenure time.Duration `json:"tenure_ns,omitempty"`
	// Backfill lets runs that fit pass one that does not, which may hold it up for long.
	Backfill bool `json:"backfill,omitempty"`
	// NoPreemption has runs wait for others to end.
	NoPreemption bool `json:"no_preemption,omitempty"`
}

func (p Policy) withDefaults() Policy {
	p.StartPatience = cmp.Or(p.StartPatience, 5*time.Minute)
	p.LossGrace = cmp.Or(p.LossGrace, time.Minute)
	p.YieldPatience = cmp.Or(p.YieldPatience, 2*time.Hour)
	p.AgeEvery = cmp.Or(p.AgeEvery, 24*time.Hour)
	p.Tenure = cmp.Or(p.Tenure, time.Hour)
	return p
}

// askPause lies between two questions to an orphan.
const askPause = time.Minute

// noRoomPause is how long a run waits after the scheduler refused it, though there
// seemed to be room.
const noRoomPause = 15 * time.Second

// Request is a run's request for room.
type Request struct {
	Run string `json:"run"`
	// Holder is the workflow that the answers go to.
	Holder string `json:"holder"`
	Need   Spec   `json:"need"`
	// Priority is 1 (first) to 5; 0 is 3.
	Priority int `json:"priority,omitempty"`
	// Epoch is the run's last admission, 0 before the first.
	Epoch int `json:"epoch,omitempty"`
	// Holds means that the run works under Epoch: an admission that does not know it takes it over.
	Holds bool `json:"holds,omitempty"`
}

// Tenant is a run that has asked for room.
type Tenant struct {
	Request
	Phase Phase `json:"phase"`
	// Asked is the time of its first request since it last gave up room by itself.
	Asked time.Time `json:"asked"`
	// Since is the time of the phase, Waits the time since which it has not worked.
	Since time.Time `json:"since"`
	Waits time.Time `json:"waits,omitzero"`
	// Rank is the priority with which it was admitted, its age included.
	Rank int `json:"rank,omitempty"`
	// Why says in words what a waiting run waits for, and why one makes room.
	Why string `json:"why,omitempty"`
	// Short is since when instances are missing; zero when none are.
	Short time.Time `json:"short,omitzero"`
	// NotBefore holds up a run that the scheduler has refused.
	NotBefore time.Time `json:"not_before,omitzero"`

	// Lost means that the run makes room since instances are lost, Urged that its work in
	// flight is interrupted.
	Lost  bool `json:"lost,omitempty"`
	Urged bool `json:"urged,omitempty"`
	// Again means that a leaving run has asked anew.
	Again bool `json:"again,omitempty"`
	// Told is the last message to the run.
	Told string `json:"told,omitempty"`
	// Done means that the decision of the phase was carried out.
	Done bool `json:"done,omitempty"`
}

// Drain is a node that is to be emptied.
type Drain struct {
	Node   string    `json:"node"`
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	Since  time.Time `json:"since"`
	// Closed means that the node takes no new run, Empty that no run is on it and what is
	// left is being told to end.
	Closed bool `json:"closed,omitempty"`
	Empty  bool `json:"empty,omitempty"`
	// Over means that the node is to be opened again.
	Over bool `json:"over,omitempty"`
}

// Admission is everything that is known of the cluster and the runs on it. It is plain data,
// so that a later process can continue from it.
type Admission struct {
	Policy Policy `json:"policy"`
	// Tenants are in the order of their run ids.
	Tenants []Tenant `json:"tenants,omitempty"`
	Drains  []Drain  `json:"drains,omitempty"`
	// Nodes are as they were last seen. Stale says that something was started or stopped
	// since.
	Nodes []Node `json:"nodes,omitempty"`
	Stale bool   `json:"stale,omitempty"`
	// Orphans are runs with instances that have no tenant here.
	Orphans []Orphan `json:"strangers,omitempty"`
}

// Orphan is a run with instances that the admission does not know, and when it was asked for its request.
type Orphan struct {
	Run   string    `json:"run"`
	Asked time.Time `json:"asked"`
}

// find is the tenant of a run; nil where it is not known.
func (a *Admission) find(run string) *Tenant {
	i, ok := slices.BinarySearchFunc(a.Tenants, run, func(t Tenant, run string) int { return cmp.Compare(t.Run, run) })
	if !ok {
		return nil
	}
	return &a.Tenants[i]
}

// Find is the tenant of a run.
func (a *Admission) Find(run string) (Tenant, bool) {
	if t := a.find(run); t != nil {
		return *t, true
	}
	return Tenant{}, false
}

func (t *Tenant) enter(now time.Time, phase Phase, why string) {
	t.Phase, t.Since, t.Why, t.Done = phase, now, why, false
	t.Lost, t.Urged, t.Short = false, false, time.Time{}
	if phase == Holding {
		t.Waits = time.Time{}
	} else if t.Waits.IsZero() {
		t.Waits = now
	}
}

// Ask takes in a request. One that is repeated changes nothing, but is answered again.
func (a *Admission) Ask(now time.Time, r Request) {
	if r.Priority == 0 {
		r.Priority = defaultPriority
	}
	t := a.find(r.Run)
	if t == nil {
		t = a.insert(Tenant{Request: r, Phase: Waiting, Asked: now, Since: now, Waits: now, Rank: r.Priority})
		if r.Holds { // of a cluster that has forgotten it
			t.enter(now, Holding, "")
			t.Told = toldGranted
		}
		return
	}
	r.Epoch = max(r.Epoch, t.Epoch)
	t.Told = ""
	switch t.Phase {
	case Leaving:
		t.Again = true
	case Starting, Holding, Yielding:
		if !reflect.DeepEqual(t.Need, r.Need) { // a run that was taken over with other needs
			t.enter(now, Leaving, "")
			t.Again = true
		}
	case Waiting:
	}
	t.Request = r
}

// Release takes back the room of a run whose admission has this epoch, or its request.
// keep reports that it will ask again and keeps its place in the queue.
func (a *Admission) Release(now time.Time, run string, epoch int, keep bool) {
	t := a.find(run)
	if t == nil { // it was forgotten, and may have instances nevertheless
		t = a.insert(Tenant{Request: Request{Run: run, Epoch: epoch, Priority: defaultPriority}, Asked: now})
		t.enter(now, Leaving, "")
		return
	}
	if epoch < t.Epoch {
		return
	}
	switch {
	case t.Phase == Leaving:
		t.Again = t.Again && keep
	case t.Phase == Waiting && t.Epoch == 0 || t.Phase == Waiting && !keep:
		a.remove(run)
	case t.Phase == Waiting:
	default:
		asked := t.Asked
		t.enter(now, Leaving, "")
		if t.Asked = now; keep {
			t.Asked = asked
		}
	}
}

// Ended notes that the workflow of a run has ended without a release; epoch is the epoch
// of its instances where the run has no tenant.
func (a *Admission) Ended(now time.Time, run string, epoch int) {
	if t := a.find(run); t != nil {
		epoch = t.Epoch
	}
	a.Release(now, run, epoch, false)
}

func (a *Admission) insert(t Tenant) *Tenant {
	i, _ := slices.BinarySearchFunc(a.Tenants, t.Run, func(t Tenant, run string) int { return cmp.Compare(t.Run, run) })
	a.Tenants = slices.Insert(a.Tenants, i, t)
	a.Orphans = slices.DeleteFunc(a.Orphans, func(o Orphan) bool { return o.Run == t.Run })
	return &a.Tenants[i]
}

func (a *Admission) remove(run string) {
	a.Tenants = slices.DeleteFunc(a.Tenants, func(t Tenant) bool { return t.Run == run })
}

// Started takes in what came of a Start: "" or why there is no room after all.
func (a *Admission) Started(now time.Time, run string, epoch int, refused string) {
	a.Stale = true
	t := a.find(run)
	if t == nil || t.Phase != Starting || t.Epoch != epoch {
		return
	}
	t.Done = true
	if refused != "" {
		t.enter(now, Waiting, refused)
		t.NotBefore = now.Add(noRoomPause)
	}
}

// Stopped takes in that the jobs of a run were told to end.
func (a *Admission) Stopped(run string, epoch int) {
	a.Stale = true
	if t := a.find(run); t != nil && t.Epoch == epoch && t.Phase == Leaving {
		t.Done = true
	}
}

// Shrunk takes in that engines were taken from a run.
func (a *Admission) Shrunk() { a.Stale = true }

// DrainNode has the runs on a node leave it.
func (a *Admission) DrainNode(now time.Time, node, reason, by string) {
	for i := range a.Drains {
		if a.Drains[i].Node == node {
			a.Drains[i].Over = false
			return
		}
	}
	a.Drains = append(a.Drains, Drain{Node: node, Reason: reason, By: by, Since: now})
}

// UndrainNode lets runs on a node again.
func (a *Admission) UndrainNode(node string) {
	for i := range a.Drains {
		if a.Drains[i].Node == node {
			a.Drains[i].Over, a.Drains[i].Closed = true, false
			return
		}
	}
	a.Drains = append(a.Drains, Drain{Node: node, Over: true})
}

// Moved takes in that a node was closed, told to end what is left on it, or opened.
func (a *Admission) Moved(d Decision) {
	a.Stale = true
	for i := range a.Drains {
		if a.Drains[i].Node != d.Node {
			continue
		}
		switch d.Do {
		case CloseNode:
			a.Drains[i].Closed = true
		case EmptyNode:
			a.Drains[i].Empty = true
		case OpenNode:
			a.Drains = slices.Delete(a.Drains, i, i+1)
		case Start, Stop, Shrink, Grant, Yield, Tell, Ask:
		}
		return
	}
}

// defaultPriority is the priority of a run that names none.
const defaultPriority = 3

// urgency is the priority of a waiting run, its age included: 1 is first.
func (a *Admission) urgency(now time.Time, t *Tenant) int {
	age := int(now.Sub(t.Waits) / a.Policy.withDefaults().AgeEvery)
	return max(1, t.Priority-age)
}

// Queue lists the runs that wait, first come first.
func (a *Admission) Queue(now time.Time) []Tenant {
	var out []Tenant
	for _, t := range a.Tenants {
		if t.Phase == Waiting {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(x, y Tenant) int {
		return cmp.Or(cmp.Compare(a.urgency(now, &x), a.urgency(now, &y)), x.Asked.Compare(y.Asked), cmp.Compare(x.Run, y.Run))
	})
	return out
}

// String is the tenant in one line.
func (t Tenant) String() string {
	line := fmt.Sprintf("%s %s (priority %d, epoch %d)", t.Run, t.Phase, t.Priority, t.Epoch)
	if t.Why != "" {
		line += ": " + t.Why
	}
	return line
}
