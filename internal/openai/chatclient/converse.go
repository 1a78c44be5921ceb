// Package chatclient owns a conversation with a model that may call tools: it asks a server
// of OpenAI's API over a stream, runs the calls of each turn in the sandbox, gives the
// results back, and shows all of it as it comes. It knows no device and no run.
//
// Invariant: what a model says is data. It runs in the sandbox alone, and no byte of it
// steers the terminal that shows it.
package chatclient

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"temper/internal/chat"
	"temper/sandbox/status"
)

// Message is one message of a conversation in OpenAI's form.
type Message struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCalls  []Call `json:"tool_calls,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
}

// Call is a call of a tool.
type Call struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function Function `json:"function"`
}

// Function is the tool of a call with its arguments, a JSON object.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Executed is a call with its result. Without a Status it has begun.
type Executed struct {
	ID        string        `json:"id"`
	Name      string        `json:"name"`
	Arguments string        `json:"arguments"`
	Status    status.Status `json:"status,omitempty"`
	Content   string        `json:"content,omitempty"`
}

// Delta is what is new of a turn. Executed are calls that the server ran itself.
type Delta struct {
	Reasoning, Content string
	Executed           []Executed
}

// Turn is what the model said at once, and why it ended: stop, length or tool_calls.
type Turn struct {
	Reasoning, Content string
	Calls              []Call
	Executed           []Executed
	Finish             string
	Usage              Usage
}

// Usage counts tokens.
type Usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

// Sampler samples the next turn of a conversation. It passes each part to emit as it comes;
// an error of emit ends the turn. After an error the Turn holds the text so far.
type Sampler interface {
	Turn(ctx context.Context, messages []Message, emit func(Delta) error) (Turn, error)
}

// Finishes of an answer that a turn does not have.
const (
	FinishStop     = "stop"
	FinishLength   = "length"
	FinishMaxTurns = "max_turns"
	FinishCut      = "cut"
)

// Answer is what a question led to.
type Answer struct {
	// Content is what the last turn said.
	Content string
	Finish  string
	Turns   []Turn
	Results []Executed
	Usage   Usage
}

// Conversation is the history of one talk. It is for one goroutine.
type Conversation struct {
	sampler  Sampler
	tools    *Tools // nil for none
	system   string
	maxTurns int
	messages []Message
}

// New returns a conversation. tools is nil for none; system is "" for none.
func New(sampler Sampler, tools *Tools, system string, maxTurns int) (*Conversation, error) {
	if maxTurns < 1 {
		return nil, fmt.Errorf("max_turns is %d, want at least 1", maxTurns)
	}
	c := &Conversation{sampler: sampler, tools: tools, system: system, maxTurns: maxTurns}
	c.messages = c.opening()
	return c, nil
}

func (c *Conversation) opening() []Message {
	if c.system == "" {
		return nil
	}
	return []Message{{Role: chat.RoleSystem, Content: c.system}}
}

// Reset forgets what was said and what the programs of the talk have defined.
func (c *Conversation) Reset(ctx context.Context) {
	c.messages = c.opening()
	if c.tools != nil {
		c.tools.Close(ctx)
	}
}

// Ask asks a question and follows the calls until the model answers without one. Each part
// goes to show. When ctx ends first, the history keeps what was said in whole turns and the
// words of the turn that was cut. A failure of the system takes the question back.
func (c *Conversation) Ask(ctx context.Context, question string, show func(Delta) error) (Answer, error) {
	before := len(c.messages)
	c.messages = append(c.messages, Message{Role: chat.RoleUser, Content: question})
	answer, err := c.follow(ctx, show)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		answer.Finish = FinishCut
		c.closeCut(before, answer.Content)
		return answer, ctx.Err()
	case errors.Is(err, ErrTooLong) && len(answer.Turns) > 0:
		answer.Finish = FinishLength // as in a rollout, whose tool results find no room
		c.messages = c.messages[:before]
		return answer, nil
	default:
		c.messages = c.messages[:before]
	}
	return answer, err
}

// Continue follows the calls of a talk that the sampler knows until the model answers
// without one, as Ask does.
func (c *Conversation) Continue(ctx context.Context, show func(Delta) error) (Answer, error) {
	return c.follow(ctx, show)
}

// closeCut completes the history of a cut turn, so that a model can continue it.
func (c *Conversation) closeCut(before int, said string) {
	if said != "" {
		c.messages = append(c.messages, Message{Role: chat.RoleAssistant, Content: said})
	}
	if last := c.messages[len(c.messages)-1]; last.Role != chat.RoleAssistant || len(last.ToolCalls) > 0 {
		c.messages = c.messages[:before]
	}
}

// follow is the loop of turns.
func (c *Conversation) follow(ctx context.Context, show func(Delta) error) (Answer, error) {
	var a Answer
	for {
		turn, err := c.sampler.Turn(ctx, c.messages, show)
		a.Content, a.Finish = turn.Content, turn.Finish
		a.Usage.Prompt += turn.Usage.Prompt
		a.Usage.Completion += turn.Usage.Completion
		a.Results = append(a.Results, turn.Executed...)
		if err != nil {
			return a, err
		}
		a.Turns = append(a.Turns, turn)
		var failed []Executed // calls that could not be parsed
		if c.tools != nil && len(turn.Calls) == 0 && turn.Finish == FinishStop {
			failed = c.tools.unreadable(turn.Content)
		}
		c.messages = append(c.messages, Message{Role: chat.RoleAssistant, Content: turn.Content, ToolCalls: turn.Calls})
		switch {
		case turn.Finish == FinishLength, len(turn.Calls)+len(failed) == 0:
			c.dropCalls()
			return a, nil
		case c.tools == nil:
			return a, errors.New("the model calls a tool, and there are none here")
		case len(a.Turns) >= c.maxTurns:
			a.Finish = FinishMaxTurns
			c.dropCalls()
			return a, nil
		}
		a.Content = ""
		results, err := c.results(ctx, turn.Calls, failed, show)
		a.Results = append(a.Results, results...)
		if err != nil {
			return a, err
		}
		for _, r := range results {
			c.messages = append(c.messages, Message{Role: chat.RoleTool, Content: r.Content, ToolCallID: r.ID})
		}
	}
}

// results answers the calls of a turn; failed are the answers to those in its text.
func (c *Conversation) results(ctx context.Context, calls []Call, failed []Executed, show func(Delta) error) ([]Executed, error) {
	if len(failed) > 0 {
		return failed, show(Delta{Executed: failed})
	}
	return c.tools.answer(ctx, calls, show)
}

// dropCalls removes calls without a result from the last message, since servers refuse a
// history with them.
func (c *Conversation) dropCalls() {
	last := &c.messages[len(c.messages)-1]
	for _, call := range last.ToolCalls {
		last.Content = strings.TrimLeft(last.Content+"\n", "\n") + chat.RenderCall(chat.Call{Name: call.Function.Name, Arguments: call.Function.Arguments})
	}
	last.ToolCalls = nil
}
