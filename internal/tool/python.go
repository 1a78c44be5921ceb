package tool

import (
	"context"
	"errors"
	"fmt"

	"temper/internal/rl"
	"temper/internal/tool/builtin"
	"temper/sandbox"
)

// Python runs the program that a call holds.
type Python struct {
	Executor sandbox.Executor
	Limits   sandbox.Limits
	Name     string
	// Session runs the calls of a trajectory as cells of one process.
	Session bool
}

var _ Tool = (*Python)(nil)

// Spec implements Tool.
func (p *Python) Spec() Spec { return Spec{Name: p.Name, Session: p.Session} }

// Refuse implements Tool.
func (p *Python) Refuse(c Call) string {
	if !p.Session {
		return ""
	}
	return c.Session.refusal(programOf(c))
}

// Mark implements Tool.
func (p *Python) Mark(c Call) uint64 {
	program := programOf(c)
	mark := rl.Seed(0, "call", rl.Hash(c.Problem.Fixture), rl.Hash(program.Code), rl.Hash(program.Input))
	if p.Session {
		mark = rl.Seed(mark, "session", c.Session.mark)
	}
	return mark
}

// Call implements Tool.
func (p *Python) Call(ctx context.Context, c Call) (Answer, error) {
	program := programOf(c)
	req := sandbox.Request{
		ID: c.ID, Run: c.Run, Code: program.Code, Stdin: program.Input, Fixture: c.Problem.Fixture, Limits: p.Limits,
	}
	if p.Session {
		c.Session.asCell(&req)
	}
	res, err := execute(ctx, p.Executor, req, c.Problem)
	if p.Session && errors.Is(err, sandbox.ErrSessionLost) && c.Session.move() {
		err = fmt.Errorf("%w: %w", ErrMoved, err)
	}
	if err != nil {
		return Answer{}, err
	}
	if p.Session {
		c.Session.recordCell(req, res)
	}
	return Answer{Outcome: Outcome(res), Usage: res.Usage}, nil
}

// programOf is the program of a call, whose arguments the format has checked.
func programOf(c Call) builtin.Program {
	program, _ := builtin.ProgramOf(c.Said.Arguments)
	return program
}
