package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"temper/internal/run"
)

// A stage with a window samples steps before it has learned from the ones before them.
// Which policy samples a step is fixed by its number: the one that was newest so many
// steps before. So no bit depends on how far ahead the sampling really is.

// lookahead holds the steps of a stage whose sampling has begun and that are not
// learned yet. Without a window it holds none.
type lookahead struct {
	in   *StageInput
	at   *StageProgress
	gate *gate

	begun []*begunStep
}

// begunStep is a step whose sampling has begun, beside the steps before it.
type begunStep struct {
	step   *step
	cancel workflow.CancelFunc // nil where an earlier execution has sampled
	batch  run.BuiltBatch
	err    error
	ended  bool
	// waits is true while its trajectories are cut and their next policy is not published.
	waits bool
}

// sampledStep is a step that was sampled and not learned before its stage continued as
// new.
type sampledStep struct {
	Log   run.StepInput  `json:"log"`
	Batch run.BuiltBatch `json:"batch"`
}

// restore takes over what an earlier execution of the stage has sampled.
func (l *lookahead) restore() {
	if l.in.Window == 0 {
		return
	}
	if len(l.at.Policies) == 0 {
		l.at.Policies = []run.Policy{l.at.Policy}
	}
	for _, done := range l.at.Ahead {
		l.begun = append(l.begun, &begunStep{step: &step{in: l.inputOf(done.Log.Step), log: done.Log}, batch: done.Batch, ended: true})
	}
	l.at.Ahead = nil
}

// inputOf is the input of a step, but for what is known only when it learns.
func (l *lookahead) inputOf(n int) StepInput {
	return StepInput{Run: l.in.Run, Stage: l.in.Plan, Step: n, NumSteps: l.in.NumSteps, NumShards: l.in.NumShards, Priority: l.in.Priority, Queues: l.in.Queues}
}

// samplerOf is the policy that samples a step, and how many updates it will be behind
// the one that learns from it: the window, or less in the first steps of a stage.
func (l *lookahead) samplerOf(n int) (p run.Policy, staleness int) {
	early := n - l.at.NextStep // steps between the next one and this
	newest := len(l.at.Policies) - 1
	i := max(0, newest-(l.in.Window-early))
	return l.at.Policies[i], early + newest - i
}

// span waits for the policy of the i-th span of a step's trajectories, from 0. With
// rl.partial_rollout_tokens the j-th stretch of so many response tokens is sampled by the
// policy that is j versions newer than the one by which the step begins, and the last by
// that of the step before it. In the first steps of a stage, several stretches have the
// policy that the stage begins with; they are one span.
func (l *lookahead) span(ctx workflow.Context, x *begunStep, i int) (run.PolicySpan, error) {
	n := x.step.in.Step
	x.waits = true
	err := workflow.Await(ctx, func() bool { return l.at.NextStep >= l.stretch(n, i)+n-l.in.Window })
	x.waits = false
	if err != nil {
		return run.PolicySpan{}, err
	}
	return l.spanOf(n, i), nil
}

// stretch is the number of the stretch, from 0, that ends the i-th span of a step.
func (l *lookahead) stretch(n, i int) int {
	first := l.at.NextStep - l.at.Made // that the stage makes
	return max(0, first-(n-l.in.Window)) + i
}

// spanOf is the i-th span of a step, whose policy is published.
func (l *lookahead) spanOf(n, i int) run.PolicySpan {
	j, newest := l.stretch(n, i), len(l.at.Policies)-1
	since := l.at.NextStep - (n - l.in.Window + j) // steps that were made since it was
	out := run.PolicySpan{Policy: l.at.Policies[max(0, newest-since)]}
	if j < l.in.Window {
		out.Until = (j + 1) * l.in.PartialTokens
	}
	return out
}

// spansOf are the spans of a step that learns next: all their policies are published.
// They do not depend on how far its trajectories went. One policy is no span.
func (l *lookahead) spansOf(n int) []run.PolicySpan {
	if l.in.PartialTokens == 0 || l.stretch(n, 0) >= l.in.Window {
		return nil
	}
	var out []run.PolicySpan
	for i := 0; l.stretch(n, i) <= l.in.Window; i++ {
		out = append(out, l.spanOf(n, i))
	}
	return out
}

// sampleAfter samples a step, and asks for it later than for the step before: workers
// take first what was asked for first.
func (x *begunStep) sampleAfter(ctx workflow.Context, before *begunStep) {
	x.err = workflow.Await(ctx, func() bool { return before == nil || before.ended || before.step.asked })
	if x.err == nil {
		x.batch, x.err = x.step.sample(ctx)
	}
	x.ended = true
}

// begin begins the sampling of the next step and of those in its window. Each sampling runs
// beside the steps, until it is dropped.
func (l *lookahead) begin(ctx workflow.Context) {
	for n := l.at.NextStep; n <= min(l.at.NextStep+l.in.Window, l.in.endStep()-1); n++ {
		if l.find(n) != nil {
			continue
		}
		in := l.inputOf(n)
		var staleness int
		in.Policy, staleness = l.samplerOf(n)
		x := &begunStep{step: newStep(ctx, in)}
		if x.step.log.Staleness = staleness; staleness > 0 {
			x.step.log.SampledBy = in.Policy
		}
		if l.in.PartialTokens > 0 {
			x.step.span = func(ctx workflow.Context, i int) (run.PolicySpan, error) { return l.span(ctx, x, i) }
		}
		inner, cancel := workflow.WithCancel(ctx)
		x.cancel = cancel
		before := l.find(n - 1)
		l.begun = append(l.begun, x)
		l.at.Begun = max(l.at.Begun, n)
		workflow.Go(inner, func(ctx workflow.Context) {
			x.sampleAfter(ctx, before)
		})
	}
}

func (l *lookahead) find(n int) *begunStep {
	for _, x := range l.begun {
		if x.step.in.Step == n {
			return x
		}
	}
	return nil
}

// makeStep waits for the sampling of a step and learns from it. It drops the sampling under
// way when the step does not end: it was interrupted, or has failed.
func (l *lookahead) makeStep(ctx workflow.Context, in StepInput) (StepResult, error) {
	out, err := l.learn(ctx, in, workflow.Now(ctx))
	if err != nil {
		l.drop(ctx)
		return StepResult{}, err
	}
	l.begun = slices.DeleteFunc(l.begun, func(x *begunStep) bool { return x.step.in.Step == in.Step })
	l.at.Policies = append(l.at.Policies, out.Policy)
	l.at.Policies = l.at.Policies[max(0, len(l.at.Policies)-1-l.in.Window):]
	return out, nil
}

// learn learns from a step as soon as it is sampled. The step counts from the end of
// the one before, so that the times of steps add up to that of the stage.
func (l *lookahead) learn(ctx workflow.Context, in StepInput, started time.Time) (StepResult, error) {
	x := l.find(in.Step)
	if err := workflow.Await(ctx, func() bool { return x.ended }); err != nil {
		return StepResult{}, err
	}
	if x.err != nil {
		return StepResult{}, x.err
	}
	x.step.in.Run, x.step.in.NumSteps, x.step.in.Save = in.Run, in.NumSteps, in.Save
	x.step.log.Spans = l.spansOf(in.Step)
	x.step.log.Run, x.step.log.NumSteps, x.step.log.Started = in.Run, in.NumSteps, started
	return x.step.learn(ctx, x.batch)
}

// underWay reports whether anything is being sampled. A sampling that waits for a policy
// does not count: a step that is not made yet publishes this policy.
func (l *lookahead) underWay() bool {
	return slices.ContainsFunc(l.begun, func(x *begunStep) bool { return !x.ended && !x.waits })
}

// isOpen reports whether the sampling of a step has begun and not ended.
func (l *lookahead) isOpen() bool {
	return slices.ContainsFunc(l.begun, func(x *begunStep) bool { return !x.ended })
}

// drop cancels the samplings under way and waits for their end. Sampled trajectories stay.
func (l *lookahead) drop(ctx workflow.Context) {
	if len(l.begun) == 0 {
		return
	}
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	for _, x := range l.begun {
		if !x.ended {
			x.cancel()
		}
	}
	// A disconnected Await ends only by its condition.
	_ = workflow.Await(ctx, func() bool { return !l.isOpen() })
	l.begun = slices.DeleteFunc(l.begun, func(x *begunStep) bool { return x.err != nil })
}

// endBeforePause lets what is being sampled come to its end before a pause, so that a paused
// stage does nothing. A command that says now interrupts it.
func (l *lookahead) endBeforePause(ctx workflow.Context) error {
	if !l.gate.held() || !l.underWay() {
		return nil
	}
	if y := l.gate.Yield; y != nil && y.Now {
		l.drop(ctx)
		return nil
	}
	interrupted := false
	l.gate.interrupt = func() { interrupted = true }
	err := workflow.Await(ctx, func() bool { return interrupted || !l.gate.held() || l.gate.Stopping || l.gate.Skip || !l.underWay() })
	l.gate.interrupt = nil
	if interrupted {
		l.drop(ctx)
		l.gate.Now = false // done
	}
	return err
}

// handOver waits for the samplings under way and hands them to the next execution, which
// begins those again that have failed or wait for a policy; their stored trajectories stay.
func (l *lookahead) handOver(ctx workflow.Context) ([]sampledStep, error) {
	if err := workflow.Await(ctx, func() bool { return !l.underWay() }); err != nil {
		return nil, err
	}
	if l.isOpen() {
		l.drop(ctx)
	}
	var out []sampledStep
	for _, x := range l.begun {
		if x.err == nil {
			out = append(out, sampledStep{Log: x.step.log, Batch: x.batch})
		}
	}
	return out, nil
}
