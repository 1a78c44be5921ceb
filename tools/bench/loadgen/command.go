package loadgen

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"

	"temper/sandbox"
)

// commandTarget starts a command for each call.
type commandTarget struct{ args []string }

// FromCommand makes a command a target: it is started for each call, with the
// program as its last argument.
func FromCommand(args ...string) Target { return commandTarget{args} }

func (t commandTarget) Batch() int { return 1 }
func (t commandTarget) Close()     {}

func (t commandTarget) Do(ctx context.Context, calls []Call) []Outcome {
	out := make([]Outcome, len(calls))
	for i, call := range calls {
		out[i] = t.run(ctx, call)
	}
	return out
}

func (t commandTarget) run(ctx context.Context, call Call) Outcome {
	args := append(t.args[1:len(t.args):len(t.args)], call.Program.Code)
	cmd := exec.CommandContext(ctx, t.args[0], args...) //nolint:gosec // running programs is its purpose
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(call.Program.Stdin), &stdout, &stderr
	err := cmd.Run()
	res := sandbox.Result{Status: sandbox.StatusOK, Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return lost(KindGaveUp, ctx.Err().Error())
	case errors.As(err, &exit):
		res.Status, res.ExitCode = sandbox.StatusError, exit.ExitCode()
	case err != nil:
		return lost(KindNoAnswer, err.Error())
	}
	return call.judge(res)
}
