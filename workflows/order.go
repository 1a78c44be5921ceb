package workflows

import (
	"cmp"
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"temper/internal/run"
)

// order is a command that a run has its stage carry out, because the stage alone
// knows which step is in flight.
type order struct {
	ID      int     `json:"id"`
	Name    string  `json:"name"`
	Command Command `json:"command"`
	// Amendment of amend and repeat_stage, less its step where none was named.
	Amendment *amendOrder `json:"amendment,omitempty"`
	// Seal is the run's; see seal.
	Seal string `json:"seal,omitempty"`
}

// receipt is what came of an order.
type receipt struct {
	ID     int    `json:"id"`
	Answer string `json:"answer,omitempty"`
	// Refused is why nothing was done.
	Refused string `json:"refused,omitempty"`
	// Amended is set where the configuration was changed.
	Amended *run.Amended `json:"amended,omitempty"`
	Seal    string       `json:"seal,omitempty"`
}

// seal is what the signals of one execution of a run and its stages carry. It keeps
// out what a person sends by mistake, and what is left of an earlier execution of the
// run. It is no secret: who may send signals may send commands as well.
func seal(ctx workflow.Context) string {
	info := workflow.GetInfo(ctx)
	return cmp.Or(info.OriginalRunID, info.WorkflowExecution.RunID) // a reset keeps the first
}

// gateOrder hands what was asked of a run to its stage.
type gateOrder struct {
	holding
	// Yield holds the stage while the run has no room.
	Yield *Yield `json:"yield,omitempty"`
	Seal  string `json:"seal,omitempty"`
}

// stageLink is how a run reaches the stage under way.
type stageLink struct {
	forwarding workflow.Mutex
	// seal goes with each signal.
	seal string
	// child is the stage that runs now; nil between stages.
	child workflow.ChildWorkflowFuture
	// orders counts what the stage was asked for, receipts holds what it answered.
	orders   int
	receipts map[int]receipt
	// adopt takes over a configuration that the stage has amended, or says why not.
	adopt func(run.Amended) error
}

// errForeignSignal refuses a signal without the seal.
var errForeignSignal = errors.New("it does not come from the run and its stage: give the run a command instead")

// forward hands what was asked for to the stage, one state at a time: the newest.
func (l *stageLink) forward(ctx workflow.Context, newest func() gateOrder) {
	if err := l.forwarding.Lock(ctx); err != nil {
		return // cancelled: the stage is being cancelled, too
	}
	defer l.forwarding.Unlock()
	if l.child == nil {
		return
	}
	// A stage that has just ended cannot be told; the run's own next safe point
	// comes first then.
	order := newest()
	order.Seal = l.seal
	_ = l.child.SignalChildWorkflow(ctx, signalGate, order).Get(ctx, nil)
}

// ask has the stage carry out an order. It returns false when there is no stage,
// or it ended before it took the order: the run does it itself then.
func (l *stageLink) ask(ctx workflow.Context, o order) (receipt, bool) {
	child := l.child
	if child == nil {
		return receipt{}, false
	}
	l.orders++
	o.ID, o.Seal = l.orders, l.seal
	if err := child.SignalChildWorkflow(ctx, signalOrder, o).Get(ctx, nil); err != nil {
		return receipt{}, false
	}
	var got receipt
	have := func() (ok bool) { got, ok = l.receipts[o.ID]; return ok }
	if err := workflow.Await(ctx, func() bool { return have() || l.child != child }); err != nil {
		return receipt{}, false
	}
	delete(l.receipts, o.ID)
	return got, got.ID == o.ID
}

// takeReceipt keeps the answer of the stage for the command that waits for it.
func (l *stageLink) takeReceipt(_ workflow.Context, content signalContent) error {
	var got receipt
	if err := content.decode(&got); err != nil {
		return err
	}
	if got.Seal != l.seal {
		return errForeignSignal
	}
	if got.ID < 1 || got.ID > l.orders {
		return fmt.Errorf("order %d was not given", got.ID)
	}
	var err error
	if got.Amended != nil {
		if err = l.adopt(*got.Amended); err != nil {
			got = receipt{ID: got.ID, Refused: err.Error()}
		}
	}
	l.receipts[got.ID] = got
	return err
}

// takeOrder carries out what the run asks for and answers.
func (s *stage) takeOrder(ctx workflow.Context, content signalContent) error {
	var o order
	err := content.decode(&o)
	if o.Seal != s.in.Seal {
		return cmp.Or(err, errForeignSignal)
	}
	if o.ID < 1 {
		return cmp.Or(err, fmt.Errorf("order %d has no number", o.ID))
	}
	out := receipt{Refused: "the stage does not understand the order"}
	if err == nil {
		out = s.carryOut(ctx, o)
	}
	out.ID, out.Seal = o.ID, s.in.Seal
	if parent := workflow.GetInfo(ctx).ParentWorkflowExecution; parent != nil {
		// A run that is gone needs no answer.
		_ = workflow.SignalExternalWorkflow(ctx, parent.ID, "", signalReceipt, out).Get(ctx, nil)
	}
	return err
}

func (s *stage) carryOut(ctx workflow.Context, o order) receipt {
	switch o.Name {
	case CommandCheckpoint:
		s.gate.Save = true
		return receipt{Answer: s.gate.answer(CommandCheckpoint)}
	case CommandSkipStage:
		s.gate.Skip, s.gate.SkipWhy = true, byWhom(o.Command.Reason, o.Command.By)
		if o.Command.Now && s.gate.interrupt != nil {
			s.gate.interrupt()
		}
		return receipt{Answer: fmt.Sprintf("stage %s ends at its next safe point", s.in.Plan.Name)}
	case CommandAmend:
		if o.Amendment == nil {
			return receipt{Refused: "amend names no amendment"}
		}
		return s.amend(ctx, *o.Amendment)
	default: // an order of a newer run than this code
		return receipt{Refused: "the stage does not know " + shorten(o.Name)}
	}
}

// amend changes the configuration from the first step on that has not begun.
func (s *stage) amend(ctx workflow.Context, a amendOrder) receipt {
	s.gate.busy++
	defer func() { s.gate.busy-- }()
	earliest := s.at.NextStep
	if s.inStep {
		earliest++
	}
	// A step that is sampled ahead has begun. So has one that was interrupted: its groups are kept.
	earliest = max(earliest, s.at.Begun+1, s.at.Interrupted+1)
	out, err := a.carryOut(ctx, s.in.Run, earliest)
	if err != nil {
		return receipt{Refused: failureText(asFailure(err))}
	}
	s.adopt(out)
	return receipt{Answer: out.Text, Amended: &out}
}

// adopt continues under an amended configuration.
func (s *stage) adopt(out run.Amended) {
	s.in.Run.Config = out.Config
	s.in.CheckpointEvery = out.CheckpointEvery
	s.in.NumSteps = 0
	for _, p := range out.Stages {
		s.in.NumSteps += p.Steps
		if p.Index == s.in.Plan.Index {
			s.in.Plan.Steps = p.Steps
		}
	}
}
