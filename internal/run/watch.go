package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/rules"
	"temper/internal/run/artifact"
)

// EventAlert is the kind of the event that a broken rule of the watch leaves.
const EventAlert = "alert"

// Watched is the result of the watch for a step.
type Watched struct {
	// Alerts begin with the step.
	Alerts []rules.Alert `json:"alerts,omitempty"`
	// Standing are all alerts whose rule is still broken, in one line each.
	Standing []string `json:"standing,omitempty"`
	// StallAfter is the time after which the next step counts as stalled; 0 = never.
	StallAfter time.Duration `json:"stall_after_ns,omitempty"`
}

// Notice is the message to a webhook about a run in trouble.
type Notice struct {
	RunID    string        `json:"run_id"`
	Stage    string        `json:"stage"`
	Step     int           `json:"step"`
	NumSteps int           `json:"num_steps"`
	Alerts   []rules.Alert `json:"alerts"`
}

// watching is the test of a step by the rules of the run's watch.
type watching struct {
	in    StepInput
	rules config.Watch
	after rules.WatchState // the step
}

// newWatching tests a step and writes nothing.
func newWatching(ctx context.Context, store blob.Store, cfg config.Run, in StepInput) (*watching, error) {
	before, err := stateBefore(ctx, store, cfg, in)
	if err != nil {
		return nil, err
	}
	w := &watching{in: in, rules: cfg.At(in.Step).Watch}
	w.after, _ = before.Next(w.rules, watchedStep(in))
	return w, nil
}

// stateBefore returns the state of the rules before a step: the state after the step
// before, or after the last step of an earlier stage that ended early.
func stateBefore(ctx context.Context, store blob.Store, cfg config.Run, in StepInput) (rules.WatchState, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	state, ok, err := artifact.Lookup[rules.WatchState](ctx, store, layout.Step(in.Step-1).Watch())
	if ok || err != nil {
		return state, err
	}
	for _, s := range slices.Backward(PlanOf(in.Run.RunID, cfg.At(in.Step)).Stages) {
		first, last := max(s.FirstStep, cfg.Fork.Step+1), min(s.FirstStep+s.Steps, in.Step)-1
		step, ok, err := artifact.Newest(ctx, store, first, last, func(step int) string { return layout.Step(step).Watch() })
		if err != nil {
			return state, err
		}
		if ok {
			state, _, err = artifact.Lookup[rules.WatchState](ctx, store, layout.Step(step).Watch())
			return state, err
		}
	}
	return state, nil
}

// report reports what the test found, and writes an event for each new alert.
func (w *watching) report(ctx context.Context, store blob.Store) (Watched, error) {
	out := Watched{StallAfter: w.after.StallAfter(w.rules)}
	for _, a := range w.after.Standing {
		out.Standing = append(out.Standing, fmt.Sprintf("%s, since step %d", a.Text, a.Step))
		if a.Step != w.in.Step {
			continue
		}
		out.Alerts = append(out.Alerts, a)
		if err := LogEvent(ctx, store, Event{
			Run: w.in.Run, Time: w.in.Ended, Kind: EventAlert, Text: fmt.Sprintf("step %d: %s", a.Step, a.Text), ID: fmt.Sprintf("watch/%d/%s", a.Step, a.Rule),
		}); err != nil {
			return out, err
		}
	}
	return out, nil
}

// firstTrouble returns the text of the first standing alert, for a list of runs.
func firstTrouble(s rules.WatchState) string {
	if len(s.Standing) == 0 {
		return ""
	}
	return fmt.Sprintf("%s, since step %d", s.Standing[0].Text, s.Standing[0].Step)
}

func watchedStep(in StepInput) rules.StepFigures {
	return rules.StepFigures{Step: in.Step, Stage: in.Stage, Rollouts: in.Rollouts, Train: in.Train.Metrics, Wall: in.Ended.Sub(in.Started)}
}

// WarnOfNoUpdate logs an alert when none of a run's steps has changed the policy.
func WarnOfNoUpdate(ctx context.Context, store blob.Store, in FinishInput) error {
	last := int(in.Policy.Version)
	state, ok, err := artifact.Lookup[rules.WatchState](ctx, store, artifact.Layout{RunID: in.Run.RunID}.Step(last).Watch())
	if err != nil || !ok || state.Updates > 0 {
		return err
	}
	first := 0
	if in.Fork != nil {
		first = in.Fork.Step
	}
	return LogEvent(ctx, store, Event{Run: in.Run, Time: in.Ended, Kind: EventAlert, ID: "watch/end", Text: fmt.Sprintf(
		"none of the %d steps made an update, so the last policy is the first one: all groups were dropped, or all updates skipped", last-first)})
}
