package placement

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"temper/internal/role"
)

// Kind tells which figures a rule looks at.
type Kind string

// The kinds of rules.
const (
	// BySlots holds (busy + waiting) / slots at Target, and the wait of the slowest twentieth
	// below MaxWait: sandbox nodes by their calls, engines by their trajectories.
	BySlots Kind = Kind(role.LoadSlots)
	// ByBacklog holds the age of the oldest task that waits below MaxWait: control workers.
	ByBacklog Kind = Kind(role.LoadBacklog)
)

// Rule keeps one group at its size. Zero values are the defaults.
type Rule struct {
	Job   string `json:"job"`
	Group string `json:"group"`
	Kind  Kind   `json:"kind"`
	// Least and Most bound the count.
	Least int `json:"least"`
	Most  int `json:"most"`
	// Target is the wanted share of busy slots; 0 is 0.7.
	Target float64 `json:"target,omitempty"`
	// MaxWaitSeconds is how long a call or a task may wait; 0 is 0.5 s by slots and 1 s by
	// backlog.
	MaxWaitSeconds float64 `json:"max_wait_seconds,omitempty"`
	// Hold is how long a backlog must be old before it counts; 0 is 15 s.
	Hold time.Duration `json:"hold_ns,omitempty"`
	// DownEvery is how long a group must be larger than its load asks for before one instance goes, and between two that go;
	// 0 is 5 minutes.
	DownEvery time.Duration `json:"down_every_ns,omitempty"`
}

func (r Rule) withDefaults() Rule {
	r.Group = cmp.Or(r.Group, r.Job)
	r.Target = cmp.Or(r.Target, 0.7)
	if r.Kind == ByBacklog {
		r.MaxWaitSeconds = cmp.Or(r.MaxWaitSeconds, 1)
	}
	r.MaxWaitSeconds = cmp.Or(r.MaxWaitSeconds, 0.5)
	r.Hold = cmp.Or(r.Hold, 15*time.Second)
	r.DownEvery = cmp.Or(r.DownEvery, 5*time.Minute)
	return r
}

// Check lists what is wrong with a rule.
func (r Rule) Check() (wrong []string) {
	if r.Job == "" {
		wrong = append(wrong, "job: is missing")
	}
	if r.Kind != BySlots && r.Kind != ByBacklog {
		wrong = append(wrong, fmt.Sprintf("%s.kind: is %q, want %q or %q", r.Job, r.Kind, BySlots, ByBacklog))
	}
	if r.Least < 0 || r.Most < max(1, r.Least) {
		wrong = append(wrong, fmt.Sprintf("%s: is %d to %d, want 0 <= least <= most and most at least 1", r.Job, r.Least, r.Most))
	}
	if r.Target < 0 || r.Target > 1 || math.IsNaN(r.Target) {
		wrong = append(wrong, fmt.Sprintf("%s.target: is %g, want above 0 and at most 1", r.Job, r.Target))
	}
	return wrong
}

// Load is the measured load of a group.
type Load struct {
	Job string `json:"job"`
	// Count is the number of instances that are wanted now, Answering those that answer.
	Count     int `json:"count"`
	Answering int `json:"answering"`
	// Slots counts the slots of the instances that answer; Busy of them are taken, and Waiting calls wait for
	// one.
	Slots   int `json:"slots"`
	Busy    int `json:"busy"`
	Waiting int `json:"waiting"`
	// InUse is the number of instances with a live session; the group is not made smaller.
	InUse int `json:"in_use,omitempty"`
	// WaitSeconds is the 95th percentile of the time in the queue, or the age of a backlog.
	WaitSeconds float64 `json:"wait_seconds"`
	// Unknown means that nothing could be measured.
	Unknown string `json:"unknown,omitempty"`
}

// State is the state of a rule between decisions.
type State struct {
	Job string `json:"job"`
	// Spare is since when the group could be smaller, Late since when its backlog is old;
	// zero while it is not.
	Spare time.Time `json:"calm,omitzero"`
	Late  time.Time `json:"late,omitzero"`
}

// Decide says to which count the group goes now, if to another.
func (r Rule) Decide(now time.Time, s *State, l Load) (Scaling, bool) {
	r = r.withDefaults()
	s.Job = r.Job
	out := Scaling{Job: r.Job, Group: r.Group, From: l.Count, To: l.Count}
	if l.Unknown != "" {
		s.Spare, s.Late = time.Time{}, time.Time{}
		return out, false // what is not known is no reason
	}
	if l.Count < r.Least || l.Count > r.Most {
		out.To = min(max(l.Count, r.Least), r.Most)
		out.Reason = fmt.Sprintf("the bounds are %d to %d", r.Least, r.Most)
		return out, true
	}
	want, why, figures := r.bySlots(l)
	if r.Kind == ByBacklog {
		want, why, figures = r.byBacklog(now, s, l)
	}
	want = min(max(want, r.Least), r.Most)
	out.Reason, out.Figures = why, figures
	switch {
	case want > l.Count:
		s.Spare, s.Late = time.Time{}, time.Time{}
		out.To = want
		return out, true
	case want == l.Count || l.Count-1 < max(r.Least, l.InUse):
		s.Spare = time.Time{}
		return out, false
	}
	if s.Spare.IsZero() {
		s.Spare = now
	}
	if now.Sub(s.Spare) < r.DownEvery {
		return out, false
	}
	s.Spare = now
	out.To = l.Count - 1
	out.Reason = fmt.Sprintf("%s for %s", why, r.DownEvery)
	return out, true
}

// bySlots is the count that the demand asks for.
func (r Rule) bySlots(l Load) (want int, why string, figures map[string]float64) {
	demand := l.Busy + l.Waiting
	figures = map[string]float64{
		"busy": float64(l.Busy), "waiting": float64(l.Waiting), "slots": float64(l.Slots), "wait_p95_s": l.WaitSeconds,
	}
	if l.Slots == 0 || l.Answering == 0 {
		// Instances that do not answer yet are on their way; without any, one is asked for.
		want = l.Count
		if l.Count == 0 && demand > 0 {
			want = 1
		}
		return want, "no instance answers, and calls wait", figures
	}
	load := float64(demand) / float64(l.Slots)
	figures["load"] = load
	each := float64(l.Slots) / float64(l.Answering)
	want = int(math.Ceil(float64(demand) / (each * r.Target)))
	why = fmt.Sprintf("load %.2f of %.2f wanted", load, r.Target)
	if l.WaitSeconds > r.MaxWaitSeconds && l.Waiting > 0 && want <= l.Answering {
		want = l.Answering + 1 // slots are free on the whole, and calls wait nevertheless
		why = fmt.Sprintf("the slowest twentieth of the calls waits %.2f s, at most %.2f s is wanted", l.WaitSeconds, r.MaxWaitSeconds)
	}
	if l.Answering < l.Count && want > l.Answering && want <= l.Count {
		want = l.Count // they are on their way
	}
	return want, why, figures
}

// byBacklog is one more while tasks are late, and one fewer while none is.
func (r Rule) byBacklog(now time.Time, s *State, l Load) (want int, why string, figures map[string]float64) {
	figures = map[string]float64{"age_s": l.WaitSeconds, "waiting": float64(l.Waiting), "running": float64(l.Busy)}
	if l.WaitSeconds > r.MaxWaitSeconds {
		if s.Late.IsZero() {
			s.Late = now
		}
		if now.Sub(s.Late) >= r.Hold && l.Answering >= l.Count {
			return l.Count + 1, fmt.Sprintf("the oldest task has waited %.1f s, at most %.1f s is wanted, for %s", l.WaitSeconds, r.MaxWaitSeconds, now.Sub(s.Late)), figures
		}
		return l.Count, "", figures
	}
	s.Late = time.Time{}
	if l.Waiting > 0 {
		return l.Count, "", figures
	}
	if l.Slots > 0 && l.Count > 0 { // an empty backlog does not mean idle
		if each := float64(l.Slots) / float64(l.Count); float64(l.Busy) > r.Target*each*float64(l.Count-1) {
			return l.Count, "", figures
		}
	}
	return l.Count - 1, "no task waits", figures
}
