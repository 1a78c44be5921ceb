package rollout

import (
	"temper/internal/chat"
	"temper/internal/rl"
	"temper/sandbox"
)

// Outcome turns a sandbox result into what the policy sees of it.
func Outcome(res sandbox.Result) chat.Outcome {
	status, _ := toolStatus(res.Status)
	o := chat.Outcome{
		Status: status, Stdout: res.Stdout, Stderr: res.Stderr, Value: res.Value,
		ExitCode: res.ExitCode, Reason: res.Reason,
	}
	if res.Error != nil {
		o.ErrType, o.ErrMsg, o.ErrLine = res.Error.Type, res.Error.Message, res.Error.Line
	}
	return o
}

// toolStatus maps the statuses that describe a program; the others are failures
// of the sandbox.
func toolStatus(s sandbox.Status) (rl.ToolStatus, bool) {
	switch s {
	case sandbox.StatusOK:
		return rl.ToolOK, true
	case sandbox.StatusError:
		return rl.ToolError, true
	case sandbox.StatusTimeLimit:
		return rl.ToolTimeout, true
	case sandbox.StatusMemoryLimit:
		return rl.ToolMemory, true
	case sandbox.StatusOutputLimit:
		return rl.ToolOutput, true
	case sandbox.StatusKilled:
		return rl.ToolKilled, true
	case sandbox.StatusRefused:
		return rl.ToolRefused, true
	case sandbox.StatusInternal:
		return "", false
	}
	return "", false
}
