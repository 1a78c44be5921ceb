package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"
)

// Command is the argument of pause, resume and stop. A signal or update
// without any argument, or with an empty object, is a command without a reason.
type Command struct {
	// Reason is shown in the status and in the run's event log.
	Reason string `json:"reason,omitempty"`
}

// errStop leaves a loop at a safe point because a stop was asked for.
var errStop = errors.New("stopped")

// gateState is what commands have asked for. It crosses continue-as-new and is
// handed from a run to its stage.
type gateState struct {
	Paused   bool   `json:"paused,omitempty"`
	Stopping bool   `json:"stopping,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// gate holds a workflow at its safe points while it is paused.
type gate struct {
	gateState
	// scope is "run" or "stage", for messages.
	scope string
	// waiting is true while the workflow stands at a safe point.
	waiting bool
	// forward passes a changed state on; nil where there is nobody below.
	forward func(workflow.Context)
	// peer is the signal by which the workflow above or below hands over its
	// state, and fromPeer what to do with it.
	peer     string
	fromPeer func(gateState)
	// pending is where commands sent as signals arrive, and the peer's states.
	pending map[string]workflow.ReceiveChannel
}

// listen installs the commands as signals and updates. It does not block.
func (g *gate) listen(ctx workflow.Context, describe map[string]string) error {
	g.pending = make(map[string]workflow.ReceiveChannel, len(describe))
	for _, name := range commands() {
		g.pending[name] = workflow.GetSignalChannelWithOptions(ctx, name,
			workflow.SignalChannelOptions{Description: describe[name]})
		err := workflow.SetUpdateHandlerWithOptions(ctx, name,
			func(ctx workflow.Context, c Command) (string, error) {
				g.apply(ctx, name, c)
				return g.describe(), nil
			},
			workflow.UpdateHandlerOptions{
				Description: describe[name],
				Validator:   func(Command) error { return g.refusal(name) },
			})
		if err != nil {
			return fmt.Errorf("update handler %s: %w", name, err)
		}
	}
	g.pending[g.peer] = workflow.GetSignalChannelWithOptions(ctx, g.peer,
		workflow.SignalChannelOptions{Description: "Between a run and its stage; not for people."})
	workflow.Go(ctx, g.serveSignals)
	return nil
}

func commands() []string { return []string{CommandPause, CommandResume, CommandStop} }

// serveSignals applies signals until the workflow ends. Signals of different
// names that arrive within one workflow task are applied in the order pause,
// resume, stop; whoever needs the order of sending uses updates.
func (g *gate) serveSignals(ctx workflow.Context) {
	selector := workflow.NewSelector(ctx)
	for _, name := range g.signals() {
		selector.AddReceive(g.pending[name], func(workflow.ReceiveChannel, bool) { g.receive(ctx, name) })
	}
	for {
		selector.Select(ctx)
	}
}

// drain applies the signals that have arrived and were not served yet, so that
// none is lost by continuing as new.
func (g *gate) drain(ctx workflow.Context) {
	for _, name := range g.signals() {
		for g.receive(ctx, name) {
		}
	}
}

func (g *gate) signals() []string { return append(commands(), g.peer) }

// receive applies one signal of a name and reports whether there was one.
func (g *gate) receive(ctx workflow.Context, name string) bool {
	if name == g.peer {
		var s gateState
		ok := g.pending[name].ReceiveAsync(&s)
		if ok {
			g.fromPeer(s)
		}
		return ok
	}
	var c Command
	ok := g.pending[name].ReceiveAsync(&c)
	if ok {
		g.apply(ctx, name, c)
	}
	return ok
}

// refusal says why a command makes no sense now; nil accepts it.
func (g *gate) refusal(name string) error {
	switch {
	case g.Stopping:
		return fmt.Errorf("the %s is stopping already", g.scope)
	case name == CommandPause && g.Paused:
		return fmt.Errorf("the %s is paused already%s", g.scope, because(g.Reason))
	case name == CommandResume && !g.Paused:
		return fmt.Errorf("the %s is not paused", g.scope)
	default:
		return nil
	}
}

// apply carries out a command. As a signal cannot be refused, one that makes
// no sense is dropped with a line in the log.
func (g *gate) apply(ctx workflow.Context, name string, c Command) {
	if err := g.refusal(name); err != nil {
		workflow.GetLogger(ctx).Warn("command ignored", "command", name, "err", err)
		return
	}
	switch name {
	case CommandPause:
		g.gateState = gateState{Paused: true, Reason: c.Reason}
	case CommandResume:
		g.gateState = gateState{}
	case CommandStop:
		g.gateState = gateState{Stopping: true, Reason: c.Reason}
	}
	if g.forward != nil {
		g.forward(ctx)
	}
}

// describe is the answer to an accepted command.
func (g *gate) describe() string {
	switch {
	case g.Stopping:
		return fmt.Sprintf("the %s ends at its next safe point", g.scope)
	case g.Paused && g.waiting:
		return fmt.Sprintf("the %s is paused", g.scope)
	case g.Paused:
		return fmt.Sprintf("the %s pauses at its next safe point", g.scope)
	default:
		return fmt.Sprintf("the %s goes on", g.scope)
	}
}

// pass is a safe point: it returns at once when nothing was asked for, waits
// while paused, and returns errStop when the workflow should end. The hook is
// called with true before the wait and with false after it.
func (g *gate) pass(ctx workflow.Context, hook func(ctx workflow.Context, paused bool) error) error {
	for g.Paused && !g.Stopping {
		if err := g.wait(ctx, hook); err != nil {
			return err
		}
	}
	if g.Stopping {
		return errStop
	}
	return ctx.Err()
}

func (g *gate) wait(ctx workflow.Context, hook func(ctx workflow.Context, paused bool) error) error {
	g.waiting = true
	defer func() { g.waiting = false }()
	if err := hook(ctx, true); err != nil {
		return err
	}
	if err := workflow.Await(ctx, func() bool { return !g.Paused || g.Stopping }); err != nil {
		return err
	}
	return hook(ctx, false)
}

// settle waits for update handlers that are still running, also when the
// workflow is cancelled: an update gets its answer before the workflow closes.
func settle(ctx workflow.Context) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	// A disconnected Await ends only by its condition.
	_ = workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
