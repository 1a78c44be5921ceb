package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/internal/fault"
	"temper/internal/run"
)

// errStop leaves a loop at a safe point because a stop was asked for.
var errStop = errors.New("stopped")

// errSkip leaves a stage at a safe point because it is to be skipped.
var errSkip = errors.New("skipped")

// holding is what pause, resume and stop have asked for. A run hands it to its
// stage, and a stage to its run.
type holding struct {
	Paused   bool `json:"paused,omitempty"`
	Stopping bool `json:"stopping,omitempty"`
	// Now interrupts what is in flight.
	Now    bool   `json:"now,omitempty"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	// Since is the time of the order.
	Since *time.Time `json:"since,omitempty"`
}

// gateState is all that commands have asked for. It crosses continue-as-new.
type gateState struct {
	holding
	// Frozen is the server's pause of the workflow above or below; nil for none.
	Frozen *Freeze `json:"frozen,omitempty"`
	// Yield holds the gate while the run has no room on the cluster; nil where it has.
	Yield *Yield `json:"yield,omitempty"`
	// Save asks for a checkpoint at the next safe point.
	Save bool `json:"save,omitempty"`
	// Skip ends a stage at its next safe point, for the reason in SkipWhy.
	Skip    bool   `json:"skip,omitempty"`
	SkipWhy string `json:"skip_why,omitempty"`
}

// gate holds a workflow at its safe points while it is paused, and interrupts its work if a
// command demands it.
type gate struct {
	gateState
	// scope is "run" or "stage", for messages.
	scope string
	// waiting is true while the workflow stands at a safe point.
	waiting bool
	// busy counts orders that are being carried out: no new work begins meanwhile.
	busy int
	// interrupt cancels the work in flight; nil where there is none.
	interrupt workflow.CancelFunc
	// forward passes a changed state on; nil for a stage.
	forward func(workflow.Context)
	// save makes a checkpoint of what is finished.
	save func(workflow.Context) error
	// onPause is called with true before a wait and with false after it.
	onPause func(ctx workflow.Context, paused bool) error
	// vacate gives back the room of the run, once what is finished is saved; nil for a
	// stage, whose run does it.
	vacate func(workflow.Context) error
	// carry carries out the commands that are not the gate's own; see commands.
	carry map[string]handler
	// others are the signals besides the commands, and what to do with one.
	others []signalHandler
	// ref is the run, once that is open; ignored counts the signals without effect.
	ref     func() run.Ref
	ignored int
	// pending is where signals arrive.
	pending map[string]workflow.ReceiveChannel
}

// handler refuses a command that makes no sense now, without any effect, or
// carries it out.
type handler struct {
	refuse func(Command) error
	apply  func(workflow.Context, Command) (string, error)
}

// signalHandler is a signal that no person sends. take acts on one, or says why it is ignored.
type signalHandler struct {
	name string
	take func(ctx workflow.Context, content signalContent) error
}

// listen installs the commands as signals and updates. It does not block.
func (g *gate) listen(ctx workflow.Context) error {
	g.pending = make(map[string]workflow.ReceiveChannel)
	for _, name := range g.commands() {
		g.pending[name] = workflow.GetSignalChannelWithOptions(ctx, name, workflow.SignalChannelOptions{Description: describe(name)})
		err := workflow.SetUpdateHandlerWithOptions(ctx, name,
			func(ctx workflow.Context, c Command) (string, error) { return g.apply(ctx, name, c) },
			workflow.UpdateHandlerOptions{
				Description: describe(name),
				Validator:   func(c Command) error { return cmp.Or(g.unreachable(), g.refuseNew(name, c)) },
			})
		if err != nil {
			return fmt.Errorf("update handler %s: %w", name, err)
		}
	}
	for _, o := range g.others {
		g.pending[o.name] = internalChannel(ctx, o.name)
	}
	workflow.Go(ctx, g.serveSignals)
	return nil
}

func (g *gate) commands() []string {
	if g.scope == "stage" {
		return stageCommands()
	}
	return commands()
}

// serveSignals applies signals until the workflow ends. Signals of different names that
// arrive within one workflow task are applied in the order of commands; callers that need
// the order of sending use updates.
func (g *gate) serveSignals(ctx workflow.Context) {
	selector := workflow.NewSelector(ctx)
	for _, name := range g.commands() {
		selector.AddReceive(g.pending[name], func(workflow.ReceiveChannel, bool) { g.receive(ctx, name) })
	}
	for _, o := range g.others {
		selector.AddReceive(g.pending[o.name], func(workflow.ReceiveChannel, bool) { g.receiveInternal(ctx, o) })
	}
	for {
		selector.Select(ctx)
	}
}

// drain applies the signals that have arrived and were not served yet, so that
// none is lost by continuing as new.
func (g *gate) drain(ctx workflow.Context) {
	for _, name := range g.commands() {
		for g.receive(ctx, name) {
		}
	}
	for _, o := range g.others {
		for g.receiveInternal(ctx, o) {
		}
	}
}

// receive applies one signal of a command and reports whether there was one. As
// a signal cannot be refused, one that makes no sense is ignored.
func (g *gate) receive(ctx workflow.Context, name string) bool {
	content, ok := receiveSignal(g.pending[name])
	if !ok {
		return false
	}
	var c Command
	err := content.decode(&c)
	if err == nil {
		err = c.check()
	}
	if err == nil {
		err = g.refusal(name, c)
	}
	if err == nil {
		_, err = g.apply(ctx, name, c)
	}
	if err != nil {
		g.ignore(ctx, name, err)
	}
	return true
}

// receiveInternal is receive for a signal that no person sends.
func (g *gate) receiveInternal(ctx workflow.Context, o signalHandler) bool {
	content, ok := receiveSignal(g.pending[o.name])
	if !ok {
		return false
	}
	if err := o.take(ctx, content); err != nil {
		g.ignore(ctx, o.name, err)
	}
	return true
}

// eventIgnored is the kind of the event of a signal that was ignored.
const eventIgnored = "ignored"

// maxIgnored bounds the events of signals that were ignored.
const maxIgnored = 20

// ignore says in the log why a signal had no effect, and in the event log, since its
// sender gets no answer.
func (g *gate) ignore(ctx workflow.Context, name string, why error) {
	text := fmt.Sprintf("signal %s: %s", name, shorten(failureText(why)))
	workflow.GetLogger(ctx).Warn("signal ignored", "signal", name, "err", text)
	ref := g.ref()
	if g.ignored++; g.ignored > maxIgnored || ref.RunID == "" {
		return
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		if err := logEvent(ctx, ref, eventIgnored, text); err != nil {
			workflow.GetLogger(ctx).Warn("ignored signal not recorded", "signal", name, "err", err)
		}
	})
}

// refuseNew is refusal for a command that an update brings and that is in no history yet.
func (g *gate) refuseNew(name string, c Command) error {
	err := c.check()
	if err == nil {
		err = g.refusal(name, c)
	}
	if err != nil {
		return errors.New(shorten(err.Error()))
	}
	return nil
}

// stoppingAlready ends the refusal of a second stop.
const stoppingAlready = "is stopping already"

// refusal says why a command makes no sense now; nil accepts it.
func (g *gate) refusal(name string, c Command) error {
	if err := checkKeys(name, c); err != nil {
		return err
	}
	switch {
	case g.Stopping && (name != CommandStop || !c.Now || g.Now):
		return fmt.Errorf("the %s %s", g.scope, stoppingAlready)
	case name == CommandPause && g.Paused && (!c.Now || g.Now || g.waiting):
		return fmt.Errorf("the %s is paused already%s", g.scope, because(g.Reason))
	case name == CommandResume && !g.Paused:
		return fmt.Errorf("the %s is not paused", g.scope)
	}
	if h, ok := g.carry[name]; ok {
		return h.refuse(c)
	}
	return nil
}

// apply carries out a command that is not refused.
func (g *gate) apply(ctx workflow.Context, name string, c Command) (string, error) {
	if err := g.refusal(name, c); err != nil { // since it was checked
		return "", refused(err)
	}
	if h, ok := g.carry[name]; ok {
		return h.apply(ctx, c)
	}
	now := workflow.Now(ctx)
	switch name {
	case CommandPause:
		g.holding = holding{Paused: true, Now: c.Now, Reason: c.Reason, By: c.By, Since: &now}
	case CommandResume:
		g.holding = holding{}
	case CommandStop:
		g.holding = holding{Stopping: true, Now: c.Now, Reason: c.Reason, By: c.By, Since: &now}
	case CommandCheckpoint:
		g.Save = true
		return g.answer(name), nil
	}
	g.changed(ctx)
	return g.answer(name), nil
}

// refused is the failure of an update whose command was accepted and turned out
// to make no sense.
func refused(err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), string(fault.Refused), nil)
}

// changed acts on a changed state: interrupts, and forwards the state to the stage.
func (g *gate) changed(ctx workflow.Context) {
	if (g.Now || g.Yield != nil && g.Yield.Now) && g.interrupt != nil {
		g.interrupt()
	}
	if g.forward != nil {
		g.forward(ctx)
	}
}

// answer is the answer to an accepted command.
func (g *gate) answer(name string) string {
	when := "at its next safe point"
	if g.Now {
		when = "now; the work in flight is interrupted"
	}
	switch {
	case name == CommandCheckpoint && g.waiting:
		return "a checkpoint is being saved"
	case name == CommandCheckpoint:
		return "a checkpoint is saved after the current step"
	case g.Stopping:
		return fmt.Sprintf("the %s ends %s", g.scope, when)
	case g.Paused && g.waiting:
		return fmt.Sprintf("the %s is paused", g.scope)
	case g.Paused:
		return fmt.Sprintf("the %s pauses %s", g.scope, when)
	default:
		return fmt.Sprintf("the %s goes on", g.scope)
	}
}

// pass is a safe point: it returns at once when nothing was asked for, saves
// what was asked for, waits while paused, and returns errStop or errSkip when
// the workflow should end.
func (g *gate) pass(ctx workflow.Context) error {
	for {
		if err := g.idle(ctx); err != nil {
			return err
		}
		switch {
		case g.Save:
			if err := g.checkpoint(ctx); err != nil {
				return err
			}
		case g.Stopping:
			return errStop
		case g.Skip:
			return errSkip
		case g.held():
			if err := g.wait(ctx); err != nil {
				return err
			}
		default:
			return ctx.Err()
		}
	}
}

// idle waits for orders that are being carried out.
func (g *gate) idle(ctx workflow.Context) error {
	if g.busy == 0 {
		return nil
	}
	return workflow.Await(ctx, func() bool { return g.busy == 0 })
}

func (g *gate) checkpoint(ctx workflow.Context) error {
	g.Save = false
	return g.save(ctx)
}

// wait stands at the safe point until the pause is over or the workflow is to
// end. It costs nothing: no timer runs, nothing is asked.
func (g *gate) wait(ctx workflow.Context) error {
	g.waiting = true
	defer func() { g.waiting = false }()
	cause := g.cause()
	if err := g.enterPause(ctx); err != nil {
		return err
	}
	over := func() bool { return !g.held() || g.Stopping || g.Skip }
	for !over() {
		if g.cause() != cause { // by whom and why is news
			cause = g.cause()
			if err := g.enterPause(ctx); err != nil {
				return err
			}
		}
		if err := workflow.Await(ctx, func() bool { return over() || g.Save || g.cause() != cause }); err != nil {
			return err
		}
		if g.Save {
			if err := g.checkpoint(ctx); err != nil {
				return err
			}
		}
	}
	return g.onPause(ctx, false)
}

// enterPause reports that the workflow waits at the safe point, and gives up the room of
// the run if that is demanded: finished work is saved before the room goes to another run.
func (g *gate) enterPause(ctx workflow.Context) error {
	if g.Yield != nil && !g.Yield.Lost {
		if err := g.save(ctx); err != nil {
			return err
		}
	}
	if err := g.onPause(ctx, true); err != nil {
		return err
	}
	if g.Yield == nil || g.vacate == nil {
		return nil
	}
	return g.vacate(ctx)
}

// work passes the safe point and does the work; what a command interrupts is
// done again from there.
func (g *gate) work(ctx workflow.Context, do func(workflow.Context) error) error {
	for {
		if err := g.pass(ctx); err != nil {
			return err
		}
		interrupted := false
		inner, cancel := workflow.WithCancel(ctx)
		g.interrupt = func() { interrupted = true; cancel() }
		err := do(inner)
		g.interrupt = nil
		if err == nil || !interrupted || ctx.Err() != nil || !temporal.IsCanceledError(err) {
			return err
		}
		g.Now = false // done
	}
}

// awaitHandlers waits for update handlers that are still running, also when the
// workflow is cancelled: an update gets its answer before the workflow closes.
func awaitHandlers(ctx workflow.Context) {
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
