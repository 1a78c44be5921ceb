package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"temper/internal/rl"
	"temper/internal/tool/pyfile"
	"temper/sandbox"
)

// Function runs one function of a user's file. The file is the program, so tracebacks have
// its line numbers, and the call is data on standard input. The fixture of the problem
// runs before the file in the same namespace: the function sees what a Python program of
// the policy would see. Each call is a separate process.
type Function struct {
	Executor sandbox.Executor
	Limits   sandbox.Limits
	Source   pyfile.Source
	Name     string
}

var _ Tool = (*Function)(nil)

// callEnd follows the text of the file.
//
//go:embed call.py
var callEnd string

// Spec implements Tool.
func (f *Function) Spec() Spec { return Spec{Name: f.Name} }

// Refuse implements Tool: the format has checked the arguments.
func (f *Function) Refuse(Call) string { return "" }

// Mark implements Tool.
func (f *Function) Mark(c Call) uint64 {
	return rl.Seed(0, "function", rl.Hash(c.Problem.Fixture), rl.Hash(f.Source.SHA256), rl.Hash(f.Name), rl.Hash(c.Said.Arguments))
}

// Call implements Tool.
func (f *Function) Call(ctx context.Context, c Call) (Answer, error) {
	stdin, err := json.Marshal(struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}{f.Name, json.RawMessage(c.Said.Arguments)})
	if err != nil {
		return Answer{}, err
	}
	res, err := execute(ctx, f.Executor, sandbox.Request{
		ID: c.ID, Run: c.Run, Code: f.Source.Program(callEnd), Stdin: string(stdin),
		Fixture: f.Source.Silence(c.Problem.Fixture), Limits: f.Limits,
	}, c.Problem)
	if err != nil {
		return Answer{}, err
	}
	outcome := Outcome(res)
	outcome.ErrLine = 0 // the policy does not see the file
	outcome.ErrType = strings.TrimPrefix(outcome.ErrType, pyfile.Module+".")
	return Answer{Outcome: outcome, Usage: res.Usage}, nil
}
