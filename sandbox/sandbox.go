// Package sandbox owns the vocabulary of running untrusted code: Request,
// Limits, Result, Usage and the Executor port. It imports the standard library and
// sandbox/status, and no package under sandbox/ imports a package outside of it.
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
	// ErrConflict means that the id of the call already names another program. It is a
	// bug of the caller; the same call fails again. It says nothing about the program.
	ErrConflict = errors.New("sandbox: the id names another program already: every program needs an id of its own")
	// ErrSessionLost means that the session is not in the state that the call needs: the
	// executor does not know it, it has run other cells, or it cannot be rebuilt. Nothing
	// ran, and the same call fails again. A caller that has the history starts a session of
	// another name with it. It says nothing about the program.
	ErrSessionLost = errors.New("sandbox session lost")
)

// Overloaded is an ErrOverloaded with a suggested time for the next attempt.
type Overloaded struct {
	Detail     string
	RetryAfter time.Duration
}

// Error implements error.
func (e *Overloaded) Error() string { return ErrOverloaded.Error() + ": " + e.Detail }

// Is makes errors.Is(err, ErrOverloaded) true.
func (e *Overloaded) Is(target error) bool { return target == ErrOverloaded }

// RetryAfter returns the pause that the refusing executor suggested, or fallback.
func RetryAfter(err error, fallback time.Duration) time.Duration {
	var o *Overloaded
	if errors.As(err, &o) && o.RetryAfter > 0 {
		return o.RetryAfter
	}
	return fallback
}

// Status is the outcome of a program. An Executor never returns status.Malformed.
type Status = status.Status

// The outcomes. StatusInternal is the only one that does not describe the program; it is
// never shown to a policy.
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

// Profile selects the modules that an interpreter imports before a program starts. Every
// profile runs every program: except for ProfileSubprocess, it decides only the speed, not
// the permissions.
type Profile string

// Profiles.
const (
	ProfileAuto    Profile = ""        // chosen by the imports in the code
	ProfileStrict  Profile = "strict"  // the common part of the standard library
	ProfileNumeric Profile = "numeric" // also numpy, sympy, scipy, if installed
	// ProfileSubprocess is strict and lets a program start the interpreter, if
	// the executor allows it; otherwise the executor refuses the call.
	ProfileSubprocess Profile = "subprocess"
)

// Slack returns how much longer than its wall limit a program may take while its neighbours
// use the cores. A caller with a shorter timeout loses answers on a busy machine.
func Slack(wall time.Duration) time.Duration { return max(SlackFactor*wall, MinSlack) }

// The slack is SlackFactor times the wall limit, at least MinSlack.
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
	// a single call. Calls of one session run one after the other.
	Session string `json:"session,omitempty"`
	// History lists the cells that the session has run before this one, without cells
	// that were stopped or ended its kernel. An executor whose session has run other cells
	// drops that session; an executor without the session runs the cells again and drops
	// their output and errors. Nil keeps the executor's history; an
	// empty list that is not nil means that the session begins here.
	History []string `json:"history,omitzero"`
	// HistoryStdin holds the standard inputs of the cells of History by index;
	// "" beyond its end. Nil means that the caller does not know them: a
	// cell that the executor ran itself then keeps its input.
	HistoryStdin []string `json:"history_stdin,omitzero"`
	// HistoryTimes holds the run times of the cells of History by index, the larger
	// of wall and processor time. A repeated cell may take its limits, or twice
	// that time plus a second, whichever is larger.
	HistoryTimes []time.Duration `json:"history_ns,omitzero"`
	// SessionCells is how many cells the session has run before this one, counted as in
	// History. A session that has run another number fails the call with ErrSessionLost.
	// Nil expects nothing: the session may begin with this call.
	SessionCells *int `json:"session_cells,omitzero"`
	// BranchOf names another session of the run. Session, which must be new, begins with
	// the cells of that session, in a copy of its kernel if possible.
	// History, if given, takes precedence.
	BranchOf string `json:"branch_of,omitempty"`
	Limits   Limits `json:"limits"`
}

// Usage is the resource use of one program.
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
	// Reason explains a status other than ok and error in one line.
	Reason string `json:"reason,omitempty"`
	// SessionEnded means that the kernel of the session ended with this call; the next
	// cell starts from the replayed history, without this cell.
	SessionEnded bool `json:"session_ended,omitempty"`
	// SessionNew means that the session began with this call, although the call does not
	// state that by an empty History or by 0 SessionCells: earlier cells, if any, are lost.
	SessionNew bool  `json:"session_new,omitempty"`
	Usage      Usage `json:"usage"`
}

// SessionCloser is an Executor that can end a session before its idle time is over.
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
