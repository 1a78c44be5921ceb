package loadgen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"temper/sandbox"
)

// Call is one execution that a generator asks for.
type Call struct {
	ID      string
	Program Program
	// Run and Session are empty for a call that stands alone.
	Run, Session string
}

// request is the call in the sandbox's terms.
func (c Call) request() sandbox.Request {
	return sandbox.Request{ID: c.ID, Run: c.Run, Session: c.Session, Code: c.Program.Code, Stdin: c.Program.Stdin, Limits: c.Program.Limits}
}

// Class says whether a call counts.
type Class int

// Classes of outcomes.
const (
	Good  Class = iota // answered as expected
	Wrong              // answered, but not as expected
	Lost               // never got the outcome of its program
)

// Kinds of failed calls that the generator itself names; a service adds its
// statuses, reasons and codes.
const (
	KindOutput   = "output"     // another output than expected
	KindForeign  = "foreign"    // the answer to another call
	KindNoAnswer = "no_answer"  // the connection ended first
	KindGaveUp   = "gave_up"    // the generator's own time was over
	KindRefused  = "overloaded" // refused for load, to the end
)

// Outcome is what became of one call.
type Outcome struct {
	Class  Class
	Kind   string // of a failed call
	Detail string
	// Status is how the program ended, when it was answered.
	Status sandbox.Status
	// Wall and CPU are what the program used, when the service reports it.
	Wall, CPU time.Duration
	// RetryAfter, when positive, asks to send the call again.
	RetryAfter time.Duration
	Resent     int
}

func lost(kind, detail string) Outcome { return Outcome{Class: Lost, Kind: kind, Detail: detail} }

// Target is a service under load. Implementations are safe for concurrent use.
type Target interface {
	// Do makes one exchange of at most Batch calls and returns one Outcome for
	// each, in their order.
	Do(ctx context.Context, calls []Call) []Outcome
	Batch() int
	Close()
}

// executorTarget puts load on an Executor of this process.
type executorTarget struct{ exec sandbox.Executor }

// FromExecutor makes exec a target.
func FromExecutor(exec sandbox.Executor) Target { return executorTarget{exec} }

func (t executorTarget) Batch() int { return 1 }
func (t executorTarget) Close()     {}

func (t executorTarget) Do(ctx context.Context, calls []Call) []Outcome {
	out := make([]Outcome, len(calls))
	for i, call := range calls {
		res, err := t.exec.Execute(ctx, call.request())
		if err != nil {
			out[i] = ofError(ctx, err)
			continue
		}
		out[i] = call.judge(res)
	}
	return out
}

// advised is the pause after a refusal that does not say when to come back.
const advised = 100 * time.Millisecond

// ofError is the outcome of a call that an executor answered with err.
func ofError(ctx context.Context, err error) Outcome {
	switch {
	case ctx.Err() != nil:
		return lost(KindGaveUp, ctx.Err().Error())
	case errors.Is(err, sandbox.ErrOverloaded):
		o := lost(KindRefused, err.Error())
		o.RetryAfter = sandbox.RetryAfter(err, advised)
		return o
	case errors.Is(err, sandbox.ErrUnavailable):
		return lost("unavailable", err.Error())
	default:
		return lost(KindNoAnswer, err.Error())
	}
}

// judge compares a result with what the call's program is known to do.
func (c Call) judge(res sandbox.Result) Outcome {
	p, o := c.Program, Outcome{Status: res.Status, Wall: res.Usage.Wall, CPU: res.Usage.CPU}
	want := p.Status
	if want == "" {
		want = sandbox.StatusOK
	}
	switch {
	case res.ID != "" && res.ID != c.ID:
		o.Class, o.Kind, o.Detail = Wrong, KindForeign, "id is "+res.ID
	case res.Status == sandbox.StatusInternal || res.Status == "":
		o.Class, o.Kind, o.Detail = Lost, "status_"+string(sandbox.StatusInternal), res.Reason
	case p.AnyEnd:
	case res.Status != want:
		o.Class, o.Kind = Wrong, "status_"+string(res.Status)
		o.Detail = fmt.Sprintf("want status %s; %s %s", want, res.Reason, lastLine(res.Stderr))
	case p.Want != "" && strings.TrimSpace(res.Stdout) != p.Want:
		o.Class, o.Kind, o.Detail = Wrong, KindOutput, fmt.Sprintf("printed %.60q, want %.60q", res.Stdout, p.Want)
	}
	return o
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
