// Package sandbox owns the vocabulary of running untrusted code: Request,
// Limits, Result, Usage and the Executor port. It imports the standard library and
// its own sandbox/status, and nothing under sandbox/ imports anything of ours but itself.
//
// Invariant: a program that fails is a Result with a Status; a system that
// fails is an error.
package sandbox

import (
	"context"
	"errors"
	"time"

	"temper/sandbox/status"
)

// Errors of the port. Wrap them; callers use errors.Is.
var (
	// ErrUnavailable means that no executor could take the call to its end; safe to retry.
	ErrUnavailable = errors.New("sandbox unavailable")
	// ErrOverloaded means that the call was not admitted; safe to retry later.
	ErrOverloaded = errors.New("sandbox overloaded")
	// ErrConflict means that the id of the call names another program already. It is a
	// bug of the caller; the same call fails again, and says nothing of the program.
	ErrConflict = errors.New("sandbox: the id names another program already: every program needs an id of its own")
	// ErrSessionLost means that the session is not what the call needs: the executor does
	// not know it, it has run other cells, or it cannot be rebuilt. Nothing ran, and the
	// same call fails again. A caller that has the history starts a session of another
	// name with it. It says nothing of the program.
	ErrSessionLost = errors.New("sandbox session lost")
)

// Overloaded is an ErrOverloaded that says when to come back.
type Overloaded struct {
	Detail     string
	RetryAfter time.Duration
}

// Error implements error.
func (e *Overloaded) Error() string { return ErrOverloaded.Error() + ": " + e.Detail }

// Is makes errors.Is(err, ErrOverloaded) true.
func (e *Overloaded) Is(target error) bool { return target == ErrOverloaded }

// RetryAfter returns what the executor that refused a call advised, or fallback.
func RetryAfter(err error, fallback time.Duration) time.Duration {
	var o *Overloaded
	if errors.As(err, &o) && o.RetryAfter > 0 {
		return o.RetryAfter
	}
	return fallback
}

// Status is the outcome of a program; status.Malformed is not among those that an
// Executor gives.
type Status = status.Status

// The outcomes by the names that users of the sandbox know. StatusInternal is the
// only one that does not describe the program; it is never shown to a policy.
const (
	StatusOK          = status.OK
	StatusError       = status.Error
	StatusTimeLimit   = status.TimeLimit
	StatusMemoryLimit = status.MemoryLimit
	StatusOutputLimit = status.OutputLimit
	StatusKilled      = status.Killed
	StatusRefused     = status.Refused
	StatusInternal    = status.Internal
)

// Profile says what an interpreter has imported before a program starts. Any
// program runs under any profile: it decides what is fast, not what is allowed, but for
// ProfileSubprocess.
type Profile string

// Profiles.
const (
	ProfileAuto    Profile = ""        // chosen by the imports found in the code
	ProfileStrict  Profile = "strict"  // the common part of the standard library
	ProfileNumeric Profile = "numeric" // also numpy, sympy, scipy, where they are installed
	// ProfileSubprocess is strict and lets a program start the interpreter again, where
	// the executor allows it; it refuses the call elsewhere.
	ProfileSubprocess Profile = "subprocess"
)

// Slack is how much longer than its wall limit a program may take while its neighbours
// keep it from running. A caller that gives it less time loses answers on a busy machine.
func Slack(wall time.Duration) time.Duration { return max(SlackFactor*wall, MinSlack) }

// The slack is this many times the wall limit, and MinSlack where that is more.
const (
	SlackFactor = 3
	MinSlack    = 30 * time.Second
)

// Limits bound one program. Zero fields take the executor's defaults.
type Limits struct {
	Wall   time.Duration `json:"wall_ns,omitempty"`
	CPU    time.Duration `json:"cpu_ns,omitempty"`
	Memory int64         `json:"memory_bytes,omitempty"`
	Output int64         `json:"output_bytes,omitempty"` // per stream
}

// Request is one program to run.
type Request struct {
	// ID is chosen by the caller and names the call; a repeated ID within the
	// idempotency window gets the first call's answer.
	ID   string `json:"id"`
	Code string `json:"code"`
	// Stdin is the program's standard input; empty means end of file at once.
	Stdin string `json:"stdin,omitempty"`
	// Fixture is code run before Code in the same namespace; it is not in tracebacks.
	Fixture string  `json:"fixture,omitempty"`
	Profile Profile `json:"profile,omitempty"`
	// Run is the key of fairness: waiting calls of different runs take turns.
	Run string `json:"run,omitempty"`
	// Session names a kernel that keeps its variables from cell to cell; empty for
	// a call of its own. Calls of one session run one after the other.
	Session string `json:"session,omitempty"`
	// History lists the cells that the session has run before this one, without those
	// that were stopped or ended it. An executor whose session has run other cells
	// drops it; one that has lost it or never had it runs them again, their output
	// dropped, their errors ignored. Nil leaves the executor with what it knows; an
	// empty one that is not nil says that the session begins here.
	History []string `json:"history,omitzero"`
	// HistoryStdin holds the standard inputs of the cells of History by their place;
	// "" for those beyond its end. Nil says that the caller does not know them: a
	// cell that the executor ran itself then keeps the input that it had.
	HistoryStdin []string `json:"history_stdin,omitzero"`
	// HistoryTimes holds how long the cells of History have run by their place, the larger
	// of wall and processor time. A cell that is run again may take its limits, or twice
	// that time and a second where this is more.
	HistoryTimes []time.Duration `json:"history_ns,omitzero"`
	// SessionCells is how many cells the session has run before this one, counted as in
	// History. A session that has run another number fails the call with ErrSessionLost.
	// Nil expects nothing: the session may begin with this call.
	SessionCells *int `json:"session_cells,omitzero"`
	// BranchOf names another session of the run. Session, which must be new, begins with
	// the cells that this one has run, in a copy of its kernel where that can be had.
	// Where History is given, it decides what has run.
	BranchOf string `json:"branch_of,omitempty"`
	Limits   Limits `json:"limits"`
}

// Usage is what one program consumed.
type Usage struct {
	Wall       time.Duration `json:"wall_ns"`
	CPU        time.Duration `json:"cpu_ns"`
	PeakMemory int64         `json:"peak_memory_bytes"`
	Queue      time.Duration `json:"queue_ns"` // waiting for an executor, not part of Wall
}

// PythonError is an uncaught exception of the program.
type PythonError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Line    int    `json:"line,omitempty"`   // in Code, from 1; 0 when unknown
	Source  string `json:"source,omitempty"` // that line
}

// Result is the one answer to a Request.
type Result struct {
	ID       string `json:"id"`
	Status   Status `json:"status"`
	Stdout   string `json:"stdout"` // cut in the middle at the output limit, invalid UTF-8 replaced
	Stderr   string `json:"stderr,omitempty"`
	ExitCode int    `json:"exit_code"`
	// Value is the repr of a last expression, as IPython would show it; "" for none or None.
	Value string       `json:"value,omitempty"`
	Error *PythonError `json:"error,omitempty"`
	// Reason explains statuses other than ok and error in one line.
	Reason string `json:"reason,omitempty"`
	// SessionEnded says that the kernel of the session ended with this call; the next
	// cell starts from the replayed history without this one.
	SessionEnded bool `json:"session_ended,omitempty"`
	// SessionNew says that the session began with this call, although the call does not
	// say so by an empty History or by 0 SessionCells: earlier cells, if any, are lost.
	SessionNew bool  `json:"session_new,omitempty"`
	Usage      Usage `json:"usage"`
}

// SessionCloser is an Executor that can end a session before it has been idle for long.
type SessionCloser interface {
	// CloseSession ends the session of that name in run, and reports whether there
	// was one.
	CloseSession(ctx context.Context, run, name string) (bool, error)
}

// Executor runs programs. Implementations are safe for concurrent use.
type Executor interface {
	// Execute runs req and returns its one Result. When ctx ends first the
	// program is killed, its slot freed and ctx.Err() returned.
	// Errors: ErrUnavailable, ErrOverloaded, ErrSessionLost, ctx.Err().
	Execute(ctx context.Context, req Request) (Result, error)
}
