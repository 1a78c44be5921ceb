package chaos

import (
	"time"
)

// Blow is a kill that was dealt.
type Blow struct {
	Victim string `json:"victim"`
	// Point is the fail point at which the process ended itself; "" for a kill from outside.
	Point string `json:"point,omitempty"`
	PID   int    `json:"pid,omitempty"`
	// Life is the stage of its life in which it was killed; "" at a fail point.
	Life Life `json:"life,omitempty"`
	// After is how many objects of the run had been seen.
	After int `json:"after_objects"`
	// At counts from the start of the run.
	At Seconds `json:"at_s"`
	// Progress is the time to the next object of the run that is new in the store.
	Progress Seconds `json:"progress_s"`
	// Stall is the longest time without one between this kill and the next: what
	// was under way elsewhere may still come after a kill, and then nothing.
	Stall Seconds `json:"stall_s"`
	// Extra is the longest part of a time without a new object that the undisturbed
	// run did not wait for the same object.
	Extra Seconds `json:"extra_s"`

	at    time.Time
	waits []wait // between this kill and the next
}

// Moved is a member that joined or left.
type Moved struct {
	Member string  `json:"member"`
	How    string  `json:"how"` // joins, drains, killed
	After  int     `json:"after_objects"`
	At     Seconds `json:"at_s"`
}

// beat is a moment at which there was something new.
type beat struct {
	at   time.Time
	keys []string
}

// wait is a time without a new object, and what ended it.
type wait struct {
	took Seconds
	keys []string
}

// Seconds is a duration in JSON.
type Seconds float64

func seconds(d time.Duration) Seconds { return Seconds(d.Seconds()) }

// Outcome is what one run went through.
type Outcome struct {
	Blows []Blow `json:"blows"`
	// Moves are the members that joined or left.
	Moves []Moved `json:"moves,omitempty"`
	// Samplers is the number of processes that sampled, as far as the service said.
	Samplers int `json:"samplers,omitempty"`
	// Drained counts processes that ended by themselves after a SIGTERM, before the
	// kill that was to follow.
	Drained int `json:"drained,omitempty"`
	// Missed counts kills whose moment did not come, or that found no victim.
	Missed  int      `json:"missed,omitempty"`
	Wall    Seconds  `json:"wall_s"`
	Objects int      `json:"objects"`
	Orphans []string `json:"orphans,omitempty"`
	// Failure is why the run did not end well; "" when it did.
	Failure string `json:"failure,omitempty"`

	beats []beat // the first is the start of the run
}

// Beside compares the waits after kills with those of the undisturbed run.
func (o *Outcome) Beside(calm *Outcome) {
	usual := map[string]Seconds{}
	for i := 1; i < len(calm.beats); i++ {
		for _, key := range calm.beats[i].keys {
			usual[key] = seconds(calm.beats[i].at.Sub(calm.beats[i-1].at))
		}
	}
	for i := range o.Blows {
		b := &o.Blows[i]
		for _, w := range b.waits {
			var anyway Seconds
			for _, key := range w.keys {
				anyway = max(anyway, usual[key])
			}
			b.Extra = max(b.Extra, w.took-anyway)
		}
	}
}

// measure fills in the pauses of each blow from the moments at which there was
// something new. Both slices are in the order of time.
func measure(blows []Blow, beats []beat) {
	for i := range blows {
		last, end := blows[i].at, time.Time{}
		if i+1 < len(blows) {
			end = blows[i+1].at
		}
		for _, b := range beats {
			at := b.at
			if !at.After(blows[i].at) {
				continue
			}
			blows[i].waits = append(blows[i].waits, wait{seconds(at.Sub(last)), b.keys})
			if last == blows[i].at {
				blows[i].Progress = seconds(at.Sub(last))
			}
			blows[i].Stall = max(blows[i].Stall, seconds(at.Sub(last)))
			if last = at; !end.IsZero() && at.After(end) {
				break
			}
		}
	}
}
