// Package tool owns what a policy may call: the port Tool, and its adapters for Python
// programs, for functions of a user's file and for functions of Go. Package builtin owns
// the tools that come with Temper; package chat writes and reads calls, and refuses those
// that do not fit a schema.
//
// Invariant: the answer to a call depends on the call, the fixture of its problem and
// the calls of its session, and on nothing else. A tool that fails gives an answer; an
// error means that the system failed.
package tool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"temper/internal/chat"
	"temper/internal/rl"
	"temper/internal/tool/builtin"
	"temper/sandbox"
)

// Tool is something that a policy may call. It is safe for concurrent use.
type Tool interface {
	// Spec says what the tool is.
	Spec() Spec
	// Refuse says why a call cannot run; empty when it can.
	Refuse(c Call) string
	// Mark is a hash of all that the answer depends on. It is part of the id of the
	// call, so that an executor that remembers ids never answers for another call.
	Mark(c Call) uint64
	// Call runs a call that was not refused. It is idempotent for the id of the call. It
	// returns ErrFixture and the errors of sandbox.Executor.
	Call(ctx context.Context, c Call) (Answer, error)
}

// Spec describes a tool.
type Spec struct {
	Name string
	// Session says that the calls of a trajectory share one process.
	Session bool
}

// Call is one call of a policy.
type Call struct {
	// ID names the call; Run is the key of fairness.
	ID, Run string
	Problem *rl.Problem
	Said    chat.Call
	Session *Session
}

// Answer is how a call ended.
type Answer struct {
	Outcome chat.Outcome
	Usage   sandbox.Usage
}

// ErrFixture means that the fixture of a problem cannot run. The policy is not to
// blame, and another attempt cannot help.
var ErrFixture = errors.New("fault of the data set")

// Config says which tools there are and how they run.
type Config struct {
	Executor sandbox.Executor
	// Limits bound one call; zero fields take the executor's defaults.
	Limits sandbox.Limits
	// SessionTools are the Python tools whose calls share one process for the length of
	// a trajectory; the calls of others are programs of their own.
	SessionTools []string
	// Files hold the functions that are tools, too.
	Files []File
}

// Set is the tools of a run by their names.
type Set map[string]Tool

// NewSet returns the tools of a run: the built-in ones and the functions of its files. The
// format of a run decides which of them a call can name.
func NewSet(c Config) Set {
	set := Set{}
	for _, t := range builtin.Tools() {
		if t.IsProgram() {
			set[t.Name] = &Python{Executor: c.Executor, Limits: c.Limits, Name: t.Name, Session: slices.Contains(c.SessionTools, t.Name)}
		} else {
			set[t.Name] = &Go{Tool: t}
		}
	}
	for _, f := range c.Files {
		for _, fn := range f.Functions {
			set[fn.Name] = &Function{Executor: c.Executor, Limits: c.Limits, Source: f.Source, Name: fn.Name}
		}
	}
	return set
}

// execute runs the program of a call.
func execute(ctx context.Context, e sandbox.Executor, req sandbox.Request, p *rl.Problem) (sandbox.Result, error) {
	res, err := e.Execute(ctx, req)
	if err != nil {
		return res, fmt.Errorf("sandbox: %w", err)
	}
	if !res.Status.OfProgram() {
		return res, fmt.Errorf("sandbox: call %s ended with status %q: %s", req.ID, res.Status, res.Reason)
	}
	if req.Fixture != "" && res.Status == sandbox.StatusRefused && strings.HasPrefix(res.Reason, "fixture") {
		return res, fmt.Errorf("%w: problem %s: %s", ErrFixture, p.ID, res.Reason)
	}
	return res, nil
}

// Outcome turns a sandbox result into what the policy sees of it.
func Outcome(res sandbox.Result) chat.Outcome {
	o := chat.Outcome{
		Status: res.Status, Stdout: res.Stdout, Stderr: res.Stderr, Value: res.Value,
		ExitCode: res.ExitCode, Reason: res.Reason,
	}
	if res.Error != nil {
		o.ErrType, o.ErrMsg, o.ErrLine = res.Error.Type, res.Error.Message, res.Error.Line
	}
	return o
}
