package rollout

import (
	"temper/internal/chat"
	"temper/sandbox"
)

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
