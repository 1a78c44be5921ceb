package chatclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"temper/internal/chat"
	"temper/internal/chat/jinja"
	"temper/internal/rl"
	"temper/internal/tool"
	"temper/internal/tool/builtin"
	"temper/sandbox"
	"temper/sandbox/status"
)

// ToolConfig defines which tools a model may call and how they run.
type ToolConfig struct {
	// Names of built-in tools, in the order of the prompt.
	Names []string
	// SessionTools are those whose calls share one process for the length of a talk.
	SessionTools []string
	Files        []tool.File
	Executor     sandbox.Executor
	// Limits bound one call; zero fields take the executor's defaults.
	Limits sandbox.Limits
	// MaxResponseChars cuts a result in its middle; 0 means no limit.
	MaxResponseChars int
	// MaxCallsPerTurn: further calls are answered as refused; 0 means no limit.
	MaxCallsPerTurn int
	// Fixture is Python code that runs before each call.
	Fixture string
	// Name tells the calls of this talk from all others.
	Name string
}

// Tools answer the calls of one talk. They are for one goroutine.
type Tools struct {
	cfg     ToolConfig
	schemas *jinja.List
	toolset *chat.Toolset
	set     tool.Set
	session *tool.Session
	talks   int
	calls   int
}

// NewTools returns the tools of a talk.
func NewTools(cfg ToolConfig) (*Tools, error) {
	for _, name := range cfg.Names {
		if !slices.Contains(builtin.Names(), name) {
			return nil, fmt.Errorf("no tool %q: want some of %v", name, builtin.Names())
		}
	}
	schemas, toolset, err := chat.ToolsOf(cfg.Names, cfg.SessionTools, tool.Functions(cfg.Files))
	if err != nil {
		return nil, err
	}
	if toolset == nil {
		return nil, errors.New("no tool is named")
	}
	t := &Tools{cfg: cfg, schemas: schemas, toolset: toolset}
	t.set = tool.NewSet(tool.Config{Executor: cfg.Executor, Limits: cfg.Limits, SessionTools: cfg.SessionTools, Files: cfg.Files})
	t.begin()
	return t, nil
}

func (t *Tools) begin() {
	t.talks++
	t.session = tool.NewSession(fmt.Sprintf("%s/%d", t.cfg.Name, t.talks))
}

// Schemas are the tools as a request of OpenAI's API names them.
func (t *Tools) Schemas() (json.RawMessage, error) {
	text, err := jinja.Encode(t.schemas)
	return json.RawMessage(text), err
}

// closePatience is how long the end of a session may take.
const closePatience = 2 * time.Second

// Close ends the process that calls have shared. The next call begins another one.
func (t *Tools) Close(ctx context.Context) {
	closer, _ := t.cfg.Executor.(sandbox.SessionCloser)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	_ = t.session.Close(ctx, closer, t.cfg.Name) // one that stays is ended when it was idle for long
	t.begin()
}

// answer runs the calls of a turn in order.
func (t *Tools) answer(ctx context.Context, calls []Call, show func(Delta) error) ([]Executed, error) {
	var out []Executed
	for i, c := range calls {
		done := Executed{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments}
		if err := show(Delta{Executed: []Executed{done}}); err != nil {
			return out, err
		}
		outcome, err := t.run(ctx, i, c.Function)
		if err != nil {
			return out, err
		}
		done.Status, done.Content = outcome.Status, outcome.Text(t.cfg.MaxResponseChars)
		if err := show(Delta{Executed: []Executed{done}}); err != nil {
			return out, err
		}
		out = append(out, done)
	}
	return out, nil
}

// attempts is how often a call is tried while the sandbox is busy or has moved a session.
const (
	attempts   = 5
	firstPause = 100 * time.Millisecond
)

// run answers the i-th call of a turn, as rollouts do.
func (t *Tools) run(ctx context.Context, i int, f Function) (chat.Outcome, error) {
	said := t.toolset.ReadCall(f.Name, f.Arguments)
	asked := tool.Call{Run: t.cfg.Name, Problem: &rl.Problem{ID: t.cfg.Name, Fixture: t.cfg.Fixture}, Said: said, Session: t.session}
	called := t.set[said.Name]
	switch {
	case t.cfg.MaxCallsPerTurn > 0 && i >= t.cfg.MaxCallsPerTurn:
		return chat.Outcome{Status: status.Refused, Reason: fmt.Sprintf("at most %d calls per turn", t.cfg.MaxCallsPerTurn)}, nil
	case said.Malformed != "":
		return chat.Outcome{Status: status.Malformed, Reason: said.Malformed}, nil
	case called.Refuse(asked) != "":
		return chat.Outcome{Status: status.Refused, Reason: called.Refuse(asked)}, nil
	}
	t.calls++
	asked.ID = fmt.Sprintf("%s/%d/%08x", t.cfg.Name, t.calls, uint32(called.Mark(asked)))
	pause := firstPause
	for attempt := 1; ; attempt++ {
		answer, err := called.Call(ctx, asked)
		again := errors.Is(err, sandbox.ErrOverloaded) || errors.Is(err, sandbox.ErrUnavailable) || errors.Is(err, tool.ErrMoved)
		if err == nil || !again || attempt == attempts {
			return answer.Outcome, err
		}
		timer := time.NewTimer(sandbox.RetryAfter(err, pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return chat.Outcome{}, ctx.Err()
		}
		pause *= 2
	}
}

// unreadable answers calls in the text of a turn that no server could read. The answers
// say what is wrong, so that a model can mend its calls, as in a rollout.
func (t *Tools) unreadable(text string) []Executed {
	var out []Executed
	for i, v := range t.toolset.Parse(text).Calls {
		if v.Refused == "" {
			return nil // a server that leaves a good call as text means it so
		}
		outcome := chat.Outcome{Status: status.Malformed, Reason: v.Refused}
		out = append(out, Executed{ID: fmt.Sprintf("text_%d", i), Name: v.Name, Status: outcome.Status, Content: outcome.Text(t.cfg.MaxResponseChars)})
	}
	return out
}
