package run

import (
	"context"
	"fmt"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/watch"
)

// EventAlert is the kind of the event that a broken rule of the watch leaves.
const EventAlert = "alert"

// Watched is what the watch found in a step.
type Watched struct {
	// Alerts begin with the step.
	Alerts []watch.Alert `json:"alerts,omitempty"`
	// Standing are all alerts whose rule is still broken, in one line each.
	Standing []string `json:"standing,omitempty"`
	// StallAfter is the time after which the next step counts as stalled; 0 = never.
	StallAfter time.Duration `json:"stall_after_ns,omitempty"`
}

// Notice is what a webhook gets of a run in trouble.
type Notice struct {
	RunID    string        `json:"run_id"`
	Stage    string        `json:"stage"`
	Step     int           `json:"step"`
	NumSteps int           `json:"num_steps"`
	Alerts   []watch.Alert `json:"alerts"`
}

// WatchStep tests a step by the rules of the run's watch and writes an event for each
// new alert. A retry returns the same and writes nothing.
func WatchStep(ctx context.Context, store blob.Store, in StepInput) (Watched, error) {
	cfg, err := ReadConfig(ctx, store, in.Run)
	if err != nil {
		return Watched{}, err
	}
	rules := cfg.At(in.Step).Watch
	layout := artifact.Layout{RunID: in.Run.RunID}
	before, _, err := artifact.Lookup[watch.State](ctx, store, layout.Watch(in.Step-1))
	if err != nil {
		return Watched{}, err
	}
	state, _ := before.Next(rules, watchedStep(in))
	if state, err = artifact.PutOnce(ctx, store, layout.Watch(in.Step), state); err != nil {
		return Watched{}, err
	}
	if trouble := firstTrouble(state); trouble != firstTrouble(before) {
		if err := noteInCatalog(ctx, store, in.Run.RunID, func(e *CatalogEntry) { e.Trouble = trouble }); err != nil {
			return Watched{}, err
		}
	}
	out := Watched{StallAfter: state.StallAfter(rules)}
	for _, a := range state.Standing {
		out.Standing = append(out.Standing, fmt.Sprintf("%s, since step %d", a.Text, a.Step))
		if a.Step != in.Step {
			continue
		}
		out.Alerts = append(out.Alerts, a)
		if err := LogEvent(ctx, store, Event{
			Run: in.Run, Time: in.Ended, Kind: EventAlert, Text: fmt.Sprintf("step %d: %s", a.Step, a.Text), ID: fmt.Sprintf("watch/%d/%s", a.Step, a.Rule),
		}); err != nil {
			return out, err
		}
	}
	return out, nil
}

// firstTrouble is what a list of runs shows of the alerts that stand.
func firstTrouble(s watch.State) string {
	if len(s.Standing) == 0 {
		return ""
	}
	return fmt.Sprintf("%s, since step %d", s.Standing[0].Text, s.Standing[0].Step)
}

func watchedStep(in StepInput) watch.Step {
	r, m := in.Rollouts, in.Train.Metrics
	return watch.Step{
		Step: in.Step, Stage: in.Stage, Reward: r.RewardMean, Groups: r.Groups, AllCorrect: r.GroupsAllCorrect, Kept: r.Kept,
		Trajectories: r.Trajectories, InfraErrors: r.InfraErrors, ToolErrors: r.ToolErrorRate, ClipRatio: r.ClipRatio,
		Entropy: m.Entropy, Updates: m.Updates, Skipped: m.SkippedUpdates, Wall: in.Ended.Sub(in.Started),
	}
}

// WarnOfNoUpdate logs an alert when none of a run's steps has changed the policy.
func WarnOfNoUpdate(ctx context.Context, store blob.Store, in FinishInput) error {
	last := int(in.Policy.Version)
	state, ok, err := artifact.Lookup[watch.State](ctx, store, artifact.Layout{RunID: in.Run.RunID}.Watch(last))
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
