package scheduler

import "errors"

// Errors of Handle. A refused event changes nothing.
var (
	// ErrTooLarge means that no engine could ever hold the trajectory.
	ErrTooLarge = errors.New("trajectory larger than every engine")
	// ErrDuplicate means that the name is taken: by a live engine, or by a trajectory that has not ended.
	ErrDuplicate = errors.New("name is taken")
	// ErrUnknown means that the name belongs to nothing, or no longer does.
	ErrUnknown = errors.New("name is unknown")
	// ErrStale means that the event belongs to an attempt that was given up.
	ErrStale = errors.New("attempt was given up")
	// ErrInvalid means that an event has impossible numbers.
	ErrInvalid = errors.New("event is invalid")
)

// Event is something that happened outside. Handle knows all kinds.
type Event interface{ isEvent() }

// Join adds an engine with a capacity in tokens of KV cache. Longest bounds the tokens of
// one trajectory on it; 0 means its capacity.
type Join struct {
	Engine            string
	Capacity, Longest int64
}

// Drain lets an engine end the turns that it has and gives it nothing new.
type Drain struct{ Engine string }

// Leave takes an engine away at once, with all that it held.
type Leave struct{ Engine string }

// Advance reports how many passes an engine has made since it joined, and the fraction
// of its capacity that it says is used. The fraction is checked, but the scheduler's own
// count decides: a report is seconds old.
type Advance struct {
	Engine string
	Passes int64
	Used   float64
}

// Submit asks for trajectories. They are taken together or not at all.
type Submit struct{ Trajectories []Trajectory }

// Trajectory is one rollout to place.
type Trajectory struct {
	ID, Run, Problem string
	Stage, Step      int
	// Prompt is the length of the prompt, Limit bounds the tokens after it.
	Prompt, Limit int
	// Length is the number of tokens after the prompt at the end, for Oracle alone.
	Length int
}

// Pause means that a turn ended with a tool call; the context has so many tokens now.
type Pause struct {
	ID      string
	Attempt int
	Context int
}

// Resume means that the tool answered: the trajectory wants its next turn.
type Resume struct {
	ID      string
	Attempt int
	Context int
}

// Finish means that a trajectory ended, after a turn or in the middle of one.
type Finish struct {
	ID      string
	Attempt int
	Context int
}

// Reject means that the engine of a running trajectory did not continue it, for lack of
// room or by an error. The trajectory waits again. The engine is given nothing new until
// one of its trajectories leaves it or it reports.
type Reject struct {
	ID      string
	Attempt int
	Context int
}

// Cancel ends a trajectory from outside, in whatever state it is.
type Cancel struct{ ID string }

// Recall tells how trajectories of a problem ended before the scheduler began, so that it
// does not have to learn their lengths anew. Turns has for each of them the tokens after the
// prompt at the end of every turn.
type Recall struct {
	Run, Problem string
	Stage, Limit int
	Turns        [][]int
}

func (Join) isEvent()    {}
func (Drain) isEvent()   {}
func (Leave) isEvent()   {}
func (Advance) isEvent() {}
func (Submit) isEvent()  {}
func (Pause) isEvent()   {}
func (Resume) isEvent()  {}
func (Finish) isEvent()  {}
func (Reject) isEvent()  {}
func (Cancel) isEvent()  {}
func (Recall) isEvent()  {}

// Kind tells what a Decision asks for.
type Kind string

// The kinds of decisions.
const (
	// Start: generate the next turn of ID on Engine, as Attempt.
	Start Kind = "start"
	// Stop: abort the turn of ID on Engine and keep its tokens. A Start elsewhere follows.
	Stop Kind = "stop"
	// Drop: release the cache of ID on Engine; its tool still runs.
	Drop Kind = "drop"
	// Refuse: ID can never run, because no engine that ever joined could hold it.
	Refuse Kind = "refuse"
	// Drained: Engine holds nothing any more and may go.
	Drained Kind = "drained"
)

// Decision is something to do. Decisions are carried out in order.
type Decision struct {
	Kind    Kind
	ID      string
	Engine  string
	Attempt int
}

// Stats are counts since the start.
type Stats struct {
	Submitted, Finished, Cancelled, Refused int64
	// Moves went to another engine between turns or within one; Drops gave up a cache.
	Moves, Drops int64
	// Waiting, Running and Paused are trajectories now.
	Waiting, Running, Paused int
	// Reserved are the tokens set aside now, over all engines.
	Reserved int64
}
