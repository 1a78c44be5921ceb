package tool

import (
	"context"
	"encoding/json"

	"temper/internal/chat"
	"temper/internal/rl"
	"temper/internal/tool/builtin"
	"temper/sandbox/status"
)

// Go is a built-in tool that runs in this process.
type Go struct{ Tool builtin.Tool }

var _ Tool = (*Go)(nil)

// Spec implements Tool.
func (g *Go) Spec() Spec { return Spec{Name: g.Tool.Name} }

// Refuse implements Tool. It refuses no call.
func (g *Go) Refuse(Call) string { return "" }

// Mark implements Tool. The answer depends on the arguments alone.
func (g *Go) Mark(c Call) uint64 {
	return rl.Seed(0, "builtin", rl.Hash(g.Tool.Name), rl.Hash(c.Said.Arguments))
}

// Call implements Tool. An error of the tool is an answer with status Error.
func (g *Go) Call(_ context.Context, c Call) (Answer, error) {
	text, err := g.Tool.Call(json.RawMessage(c.Said.Arguments))
	if err != nil {
		return Answer{Outcome: chat.Outcome{Status: status.Error, ErrType: "Error", ErrMsg: err.Error()}}, nil
	}
	return Answer{Outcome: chat.Outcome{Status: status.OK, Value: text}}, nil
}
