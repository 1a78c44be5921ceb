package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/proc/failpoint"
	"temper/internal/rules"
	"temper/internal/run/artifact"
	"temper/trainer/checkpoint"
)

// StageInput asks for the verdict on a stage after a step.
type StageInput struct {
	Run   Ref   `json:"run"`
	Stage Stage `json:"stage"`
	Step  int   `json:"step"`
	// First is the first step that the run itself made of the stage.
	First int `json:"first"`
	// Last says that the stage has no further step.
	Last bool `json:"last,omitempty"`
}

// StageVerdict is the part of a verdict that the workflow needs.
type StageVerdict struct {
	Kind   rules.Kind `json:"kind,omitempty"`
	Reason string     `json:"reason,omitempty"`
	End    bool       `json:"end,omitempty"`
	Pause  bool       `json:"pause,omitempty"`
}

// JudgeStage returns the verdict of a step. A stored verdict stays.
func JudgeStage(ctx context.Context, store blob.Store, in StageInput) (StageVerdict, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	done, ok, err := artifact.Lookup[rules.Verdict](ctx, store, layout.Step(in.Step).Verdict())
	if ok || err != nil {
		return brief(done), err
	}
	cfg, err := ReadConfig(ctx, store, in.Run)
	if err != nil {
		return StageVerdict{}, err
	}
	cfg = cfg.At(in.Step)
	before, err := trailBefore(ctx, store, layout, in)
	if err != nil {
		return StageVerdict{}, err
	}
	now, err := figures(ctx, store, layout, in.Step)
	if err != nil {
		return StageVerdict{}, err
	}
	c := rules.Case{
		Until: cfg.Stages[in.Stage.Source()-1].Until, Collapse: cfg.Watch.Collapse, Last: in.Last,
		Trail: append(before.Trail, now), CollapsedSince: before.CollapsedSince,
	}
	if c.Scores, err = scores(ctx, store, layout, c.Until.Plateau, cfg.Eval.Sets, c.Trail); err != nil {
		return StageVerdict{}, err
	}
	out := rules.JudgeStage(c)
	if out.Kind == rules.Collapse {
		if out.Reason, err = withBest(ctx, store, in.Run.RunID, out.Reason); err != nil {
			return StageVerdict{}, err
		}
	}
	failpoint.Hit("judge/before-verdict")
	out, err = artifact.PutOnce(ctx, store, layout.Step(in.Step).Verdict(), out)
	return brief(out), err
}

func brief(v rules.Verdict) StageVerdict {
	return StageVerdict{Kind: v.Kind, Reason: v.Reason, End: v.End, Pause: v.Pause}
}

// trailBefore returns the verdict of the previous step, or the figures of the stage's steps
// when the rules were off at that step.
func trailBefore(ctx context.Context, store blob.Store, layout artifact.Layout, in StageInput) (rules.Verdict, error) {
	if in.Step <= in.First {
		return rules.Verdict{}, nil
	}
	v, ok, err := artifact.Lookup[rules.Verdict](ctx, store, layout.Step(in.Step-1).Verdict())
	if ok || err != nil {
		return v, err
	}
	v.Trail = make([]rules.Figures, in.Step-in.First)
	return v, artifact.Each(ctx, len(v.Trail), func(ctx context.Context, i int) (err error) {
		v.Trail[i], err = figures(ctx, store, layout, in.First+i)
		return err
	})
}

// figures reads the stored numbers of a step's rollouts and update.
func figures(ctx context.Context, store blob.Store, layout artifact.Layout, step int) (rules.Figures, error) {
	built, ok, err := artifact.Lookup[BuiltBatch](ctx, store, layout.Step(step).BatchStats())
	if err == nil && !ok {
		err = fmt.Errorf("step %d has no %s: %w", step, layout.Step(step).BatchStats(), blob.ErrNotExist)
	}
	if err != nil {
		return rules.Figures{}, err
	}
	trained, ok, err := artifact.Lookup[Trained](ctx, store, layout.Step(step).TrainResult())
	if err == nil && !ok {
		err = fmt.Errorf("step %d has no %s: %w", step, layout.Step(step).TrainResult(), blob.ErrNotExist)
	}
	r, m := built.Stats, trained.Metrics
	return rules.Figures{
		Step: step, Reward: r.RewardMean, ClipRatio: r.ClipRatio, Tokens: r.MeanResponseTokens, ToolErrors: r.ToolErrorRate,
		Entropy: m.Entropy, Updates: m.Updates,
	}, err
}

// scores returns the evaluations of the plateau's set within the stage.
func scores(ctx context.Context, store blob.Store, layout artifact.Layout, p config.Plateau, sets []config.EvalSet, trail []rules.Figures) ([]rules.Score, error) {
	at := slices.IndexFunc(sets, func(s config.EvalSet) bool { return s.Name == p.Eval })
	if !p.On() || at < 0 || sets[at].EverySteps == 0 {
		return nil, nil
	}
	var steps []int
	for _, f := range trail {
		if f.Step%sets[at].EverySteps == 0 {
			steps = append(steps, f.Step)
		}
	}
	found := make([]rules.Score, len(steps))
	there := make([]bool, len(steps))
	err := artifact.Each(ctx, len(steps), func(ctx context.Context, i int) error {
		e, ok, err := artifact.Lookup[Evaluation](ctx, store, layout.EvalSet(p.Eval, int64(steps[i])).Result())
		found[i], there[i] = rules.Score{Step: steps[i], Accuracy: e.SampledAccuracy}, ok
		return err
	})
	var out []rules.Score
	for i := range found {
		if there[i] {
			out = append(out, found[i])
		}
	}
	return out, err
}

// withBest adds the checkpoint with the best policy to a verdict, and what to do with it.
func withBest(ctx context.Context, store blob.Store, runID, reason string) (string, error) {
	plan, ok, err := StoredPlan(ctx, store, runID)
	if err != nil || !ok {
		return reason, err
	}
	saved, err := checkpoint.List(ctx, store, artifact.Layout{RunID: runID}.Checkpoints())
	if err != nil {
		return reason, err
	}
	var cursors []int
	for _, e := range saved {
		cursors = append(cursors, e.Step)
	}
	best, err := BestCursors(ctx, store, plan, cursors, slices.Max(append(cursors, 0))-plan.SFTSteps)
	if err != nil {
		return reason, err
	}
	if len(best) == 0 {
		return reason + "; no checkpoint is known to be best", nil
	}
	return fmt.Sprintf("%s; the best checkpoint is that of step %d: temper run restart %s --step best goes back to it", reason, best[0]-plan.SFTSteps, runID), nil
}

// GateInput asks whether RL may begin.
type GateInput struct {
	Run Ref `json:"run"`
	// Before is the evaluation of policy 0 on the first stage.
	Before Evaluation `json:"before"`
}

// GateResult reports whether RL may begin, with the figures.
type GateResult struct {
	Passed bool   `json:"passed"`
	Text   string `json:"text"`
}

// JudgeGate judges the policy after SFT by the rules of sft.gate.
func JudgeGate(ctx context.Context, store blob.Store, in GateInput) (GateResult, error) {
	cfg, err := ReadConfig(ctx, store, in.Run)
	if err != nil {
		return GateResult{}, err
	}
	failpoint.Hit("judge/before-gate")
	return artifact.PutOnce(ctx, store, artifact.Layout{RunID: in.Run.RunID}.SFT().Gate(), gate(cfg.SFT.Gate, in.Before))
}

func gate(g config.SFTGate, e Evaluation) GateResult {
	copied := fmt.Sprintf("%.3f of %d answers equal the result of the last call", e.Copied, e.Copies)
	reward := fmt.Sprintf("the mean sampled reward is %.3f", e.SampledAccuracy)
	var broken []string
	rule := func(breaks bool, said, want string, limit float64, key string) {
		if limit > 0 && breaks {
			broken = append(broken, fmt.Sprintf("%s, want %s %g (sft.gate.%s)", said, want, limit, key))
		}
	}
	rule(e.Copies == 0 || e.Copied < g.MinCopied, copied, "at least", g.MinCopied, "min_copied")
	rule(e.SampledAccuracy < g.MinReward, reward, "at least", g.MinReward, "min_reward")
	rule(e.SampledAccuracy > g.MaxReward, reward, "at most", g.MaxReward, "max_reward")
	if len(broken) > 0 {
		return GateResult{Text: strings.Join(broken, "; ")}
	}
	return GateResult{Passed: true, Text: copied + "; " + reward}
}

// EventAlert is the kind of the event that a broken rule of the watch leaves.
const EventAlert = "alert"

// Watched is what the watch found in a step.
type Watched struct {
	// Alerts begin with the step.
	Alerts []rules.Alert `json:"alerts,omitempty"`
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

// stateBefore is what the rules know before a step: the state after the step before,
// or after the last step of an earlier stage that ended early.
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

// report says what the test found, and writes an event for each new alert.
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

// firstTrouble is what a list of runs shows of the alerts that stand.
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
