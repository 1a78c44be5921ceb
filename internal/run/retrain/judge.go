package retrain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/rules"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Judge applies the gate to the policy of a re-training and, when it passes, moves the
// schedule's pointer to it, unless another process has moved the pointer since the plan was
// made. It can be repeated at any point: the pointer moves once, and the first outcome that
// was written stands.
func Judge(ctx context.Context, store blob.Store, in JudgeInput) (Outcome, error) {
	s := artifact.Schedule{ID: in.ID}
	out, done, err := artifact.Lookup[Outcome](ctx, store, s.Outcome(in.Plan.RunID))
	if err != nil {
		return out, err
	}
	if !done {
		if out, err = decide(ctx, store, in); err != nil {
			return out, err
		}
		if out, err = artifact.PutOnce(ctx, store, s.Outcome(in.Plan.RunID), out); err != nil {
			return out, err
		}
	}
	if out.Outcome == Published || out.Outcome == Refused {
		if _, err := artifact.PutOnce(ctx, store, s.Judged(in.Plan.Hash), out); err != nil {
			return out, err
		}
	}
	return out, logOutcome(ctx, store, in, out)
}

// decide judges the policy and publishes it.
func decide(ctx context.Context, store blob.Store, in JudgeInput) (Outcome, error) {
	out := Outcome{RunID: in.Plan.RunID, Policy: in.Policy, From: in.Plan.From, Ended: in.Now}
	if in.Stopped {
		out.Outcome, out.Reason = Stopped, "the run was stopped: its policy is not judged, and the next re-training takes the same data"
		return out, nil
	}
	var err error
	if out.Candidate, out.Good, err = readScores(ctx, store, in); err != nil {
		return out, err
	}
	var stages []string
	for _, s := range out.Candidate {
		stages = append(stages, s.Stage)
	}
	gate, err := rules.ParseGates(in.Gate, stages)
	if err != nil {
		return out, fault.New(fault.InvalidConfig, err)
	}
	var passed bool
	out.Verdicts, passed = rules.Promote(gate, out.Candidate, out.Good)
	out.Outcome, out.Reason = Refused, reasons(out.Verdicts, passed)
	if !passed {
		return out, nil
	}
	moved, by, err := movePointer(ctx, store, in, out)
	if err != nil {
		return out, err
	}
	if !moved {
		out.Outcome = Overtaken
		out.Reason = fmt.Sprintf("the last good policy became %s while this one trained; the next re-training starts from there", by)
		return out, nil
	}
	out.Outcome = Published
	return out, nil
}

// reasons says in one line why a gate passed or did not.
func reasons(verdicts []rules.GateVerdict, passed bool) string {
	var texts []string
	for _, v := range verdicts {
		if v.Passed == passed {
			texts = append(texts, v.Text)
		}
	}
	return strings.Join(texts, "; ")
}

// readScores reads what the run measured: its last policy and, for a warm start, its
// policy 0, which is the last good one bit for bit, both on the run's held-out
// problems.
func readScores(ctx context.Context, store blob.Store, in JudgeInput) (candidate, good []rules.GateScore, err error) {
	plan, err := run.Reopen(ctx, store, in.Plan.RunID)
	if err != nil {
		return nil, nil, err
	}
	for _, stage := range plan.Stages {
		// The last stage's end is the end of the run, under the name of the former.
		score, err := readScore(ctx, store, plan.RunID, stage, in.Policy.Version, "final", "after")
		if err != nil {
			return nil, nil, err
		}
		candidate = append(candidate, score)
		if in.Plan.From == "" {
			continue
		}
		if score, err = readScore(ctx, store, plan.RunID, stage, 0, "before"); err != nil {
			return nil, nil, err
		}
		good = append(good, score)
	}
	return candidate, good, nil
}

// readScore reads the first evaluation of a policy that is stored under one of the labels.
func readScore(ctx context.Context, store blob.Store, runID string, stage run.Stage, version int64, labels ...string) (rules.GateScore, error) {
	layout := artifact.Layout{RunID: runID}
	for _, label := range labels {
		e, ok, err := artifact.Lookup[run.Evaluation](ctx, store, layout.Eval(stage.Index, label, version).Result())
		if err != nil {
			return rules.GateScore{}, err
		}
		if ok {
			return rules.GateScore{Stage: stage.Name, Problems: e.NumProblems, Metrics: map[string]float64{
				rules.Accuracy: e.Accuracy, rules.SampledAccuracy: e.SampledAccuracy, rules.ToolErrorRate: e.ToolErrorRate,
				rules.MeanTokens: e.MeanTokens, rules.MeanTurns: e.MeanTurns, rules.MeanCalls: e.MeanCalls,
			}}, nil
		}
	}
	return rules.GateScore{}, fault.Newf(fault.NotFound, "run %s: policy %d was not evaluated on stage %s", runID, version, stage.Name)
}

// movePointer makes the policy the last good one. When another re-training has moved
// the pointer meanwhile, moved is false and by names its policy.
func movePointer(ctx context.Context, store blob.Store, in JudgeInput, out Outcome) (moved bool, by string, err error) {
	s := artifact.Schedule{ID: in.ID}
	data, err := json.MarshalIndent(GoodPolicy{
		RunID: out.RunID, Policy: out.Policy, From: out.From, Data: in.Plan.Data, Scores: out.Candidate, Published: in.Now,
	}, "", "  ")
	if err != nil {
		return false, "", err
	}
	_, err = store.Swap(ctx, s.Good(), in.Plan.Good, append(data, '\n'))
	if err == nil {
		return true, "", nil
	}
	if !errors.Is(err, blob.ErrConflict) {
		return false, "", err
	}
	now, _, err := readGood(ctx, store, s)
	// An earlier attempt may have moved the pointer and died before it said so.
	return now.RunID == out.RunID, config.PolicyName(now.RunID, now.Policy.Version), err
}

// logOutcome writes the outcome to the event logs of schedule and run.
func logOutcome(ctx context.Context, store blob.Store, in JudgeInput, out Outcome) error {
	kind := map[string]string{Published: "publish", Refused: "refuse", Overtaken: "refuse", Stopped: "stop"}[out.Outcome]
	text := fmt.Sprintf("policy %d of run %s %s: %s", out.Policy.Version, out.RunID, out.Outcome, out.Reason)
	if err := LogEvent(ctx, store, Event{ID: in.ID, Time: out.Ended, Kind: kind, Text: text}); err != nil {
		return err
	}
	event := run.Event{Run: run.Ref{RunID: out.RunID}, Time: out.Ended, Kind: kind, Text: fmt.Sprintf("schedule %s: %s: %s", in.ID, out.Outcome, out.Reason)}
	_, err := artifact.PutOnce(ctx, store, artifact.Layout{RunID: out.RunID}.Events().Entry(out.Ended.UnixNano(), kind, event.Text), event)
	return err
}

// LogEvent writes one entry of a schedule's event log.
func LogEvent(ctx context.Context, store blob.Store, in Event) error {
	in.Time = in.Time.UTC().Round(time.Nanosecond) // without the clock that only this process has
	_, err := artifact.PutOnce(ctx, store, artifact.Schedule{ID: in.ID}.Event(in.Time.UnixNano(), in.Kind, in.Text), in)
	return err
}

// Events reads the event log of a schedule, oldest first.
func Events(ctx context.Context, store blob.Store, id string) ([]Event, error) {
	infos, err := store.List(ctx, artifact.Schedule{ID: id}.Events()+"/")
	if err != nil {
		return nil, fmt.Errorf("events of schedule %s: %w", id, err)
	}
	keys := make([]string, len(infos))
	for i, info := range infos {
		keys[i] = info.Key
	}
	return artifact.Gather[Event](ctx, store, keys)
}
