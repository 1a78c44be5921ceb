package workflows

import (
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
}

// receipt is what came of an order.
type receipt struct {
	ID     int    `json:"id"`
	Answer string `json:"answer,omitempty"`
	// Refused is why nothing was done.
	Refused string `json:"refused,omitempty"`
	// Amended is set where the configuration was changed.
	Amended *run.Amended `json:"amended,omitempty"`
}

// stageLink is how a run reaches the stage under way.
type stageLink struct {
	forwarding workflow.Mutex
	// child is the stage that runs now; nil between stages.
	child workflow.ChildWorkflowFuture
	// orders counts what the stage was asked for, receipts holds what it answered.
	orders   int
	receipts map[int]receipt
	// adopt takes over a configuration that the stage has amended.
	adopt func(run.Amended)
}

// forward hands what was asked for to the stage, one state at a time: the newest.
func (l *stageLink) forward(ctx workflow.Context, newest func() holding) {
	if err := l.forwarding.Lock(ctx); err != nil {
		return // cancelled: the stage is being cancelled, too
	}
	defer l.forwarding.Unlock()
	if l.child == nil {
		return
	}
	// A stage that has just ended cannot be told; the run's own next safe point
	// comes first then.
	_ = l.child.SignalChildWorkflow(ctx, signalGate, newest()).Get(ctx, nil)
}

// ask has the stage carry out an order. It returns false when there is no stage,
// or it ended before it took the order: the run does it itself then.
func (l *stageLink) ask(ctx workflow.Context, o order) (receipt, bool) {
	child := l.child
	if child == nil {
		return receipt{}, false
	}
	l.orders++
	o.ID = l.orders
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
func (l *stageLink) takeReceipt(_ workflow.Context, from workflow.ReceiveChannel) bool {
	var got receipt
	if !from.ReceiveAsync(&got) {
		return false
	}
	l.receipts[got.ID] = got
	if got.Amended != nil {
		l.adopt(*got.Amended)
	}
	return true
}

// takeOrder carries out what the run asks for and answers.
func (s *stage) takeOrder(ctx workflow.Context, from workflow.ReceiveChannel) bool {
	var o order
	if !from.ReceiveAsync(&o) {
		return false
	}
	out := s.carryOut(ctx, o)
	out.ID = o.ID
	if parent := workflow.GetInfo(ctx).ParentWorkflowExecution; parent != nil {
		// A run that is gone needs no answer.
		_ = workflow.SignalExternalWorkflow(ctx, parent.ID, "", signalReceipt, out).Get(ctx, nil)
	}
	return true
}

func (s *stage) carryOut(ctx workflow.Context, o order) receipt {
	switch o.Name {
	case CommandCheckpoint:
		s.gate.Save = true
		return receipt{Answer: s.gate.answer(CommandCheckpoint)}
	case CommandSkipStage:
		s.gate.Skip, s.gate.SkipWhy = true, who(o.Command.Reason, o.Command.By)
		if o.Command.Now && s.gate.interrupt != nil {
			s.gate.interrupt()
		}
		return receipt{Answer: fmt.Sprintf("stage %s ends at its next safe point", s.in.Plan.Name)}
	case CommandAmend:
		return s.amend(ctx, *o.Amendment)
	default: // an order of a newer run than this code
		return receipt{Refused: fmt.Sprintf("the stage does not know %s", o.Name)}
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
	out, err := a.carryOut(ctx, s.in.Run, earliest)
	if err != nil {
		return receipt{Refused: failureText(asFailure(err))}
	}
	s.adopt(out)
	return receipt{Answer: out.Text, Amended: &out}
}

// adopt goes on under an amended configuration.
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
