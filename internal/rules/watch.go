package rules

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/internal/series"
)

// The rules, by the names that alerts and states carry.
const (
	RuleReward     = "reward"
	RuleDropped    = "dropped"
	RuleToolErrors = "tool_errors"
	RuleClipRatio  = "clip_ratio"
	RuleEntropyMin = "entropy_min"
	RuleEntropyMax = "entropy_max"
	RuleSkipped    = "skipped"
	RuleInfra      = "infra_errors"
	RuleStalled    = "stalled"
)

// StepFigures is a step as the rules see it.
type StepFigures struct {
	Step, Stage int
	Rollouts    series.Rollouts
	Train       rl.TrainMetrics
	Wall        time.Duration
}

// Alert is a rule that a run has begun to break.
type Alert struct {
	Rule string `json:"rule"`
	Step int    `json:"step"`
	Text string `json:"text"`
	// Pause asks that the run stands still before its next step.
	Pause bool `json:"pause,omitempty"`
}

// WatchState is the state of the rules between the steps of one stage.
type WatchState struct {
	Stage int `json:"stage"`
	// BestReward is the highest mean reward of a step of the stage, BestStep its step.
	BestReward float64 `json:"best_reward"`
	BestStep   int     `json:"best_step"`
	// Broken counts the steps in a row that broke a rule.
	Broken map[string]int `json:"broken,omitempty"`
	// Standing are the alerts whose rule is still broken.
	Standing []Alert `json:"standing,omitempty"`
	// Updates counts the optimizer updates of the run so far.
	Updates int `json:"updates"`
	// Walls are the times of the latest steps in nanoseconds, newest last.
	Walls []time.Duration `json:"walls_ns,omitempty"`
}

const (
	numWalls = 16 // that a median is taken of
	minWalls = 3  // with fewer the pace is not known
	// minStall is the least time after which a step counts as stalled. A short step that
	// waits for a killed worker takes many times as long as usual.
	minStall = 2 * time.Minute
)

// verdict is the result of a rule for a step.
type verdict struct {
	rule   string
	broken bool
	steps  int // in a row, before it counts
	text   string
	pause  bool
}

// Next is the state after a step, and the alerts that begin with it. A stage
// begins with a fresh state.
func (s WatchState) Next(cfg config.Watch, n StepFigures) (WatchState, []Alert) {
	if s.Stage != n.Stage {
		s = WatchState{Stage: n.Stage, Updates: s.Updates, Walls: s.Walls}
	}
	if finite(n.Rollouts.RewardMean) && (n.Rollouts.RewardMean > s.BestReward || s.BestStep == 0) {
		s.BestReward, s.BestStep = n.Rollouts.RewardMean, n.Step
	}
	out := WatchState{Stage: s.Stage, BestReward: s.BestReward, BestStep: s.BestStep, Updates: s.Updates + n.Train.Updates, Broken: map[string]int{}}
	out.Walls = append(slices.Clone(s.Walls), n.Wall)
	out.Walls = out.Walls[max(0, len(out.Walls)-numWalls):]
	var begun []Alert
	for _, v := range s.judge(cfg, n) {
		if !v.broken {
			continue
		}
		out.Broken[v.rule] = s.Broken[v.rule] + 1
		at := slices.IndexFunc(s.Standing, func(a Alert) bool { return a.Rule == v.rule })
		switch {
		case at >= 0:
			out.Standing = append(out.Standing, s.Standing[at])
		case out.Broken[v.rule] >= v.steps:
			alert := Alert{Rule: v.rule, Step: n.Step, Text: v.text, Pause: cfg.Pause && v.pause}
			out.Standing, begun = append(out.Standing, alert), append(begun, alert)
		}
	}
	return out, begun
}

// finite reports whether a number can be compared, and stored as JSON.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// judge tests a step by each rule that is switched on.
func (s WatchState) judge(cfg config.Watch, n StepFigures) []verdict {
	r, m := &n.Rollouts, &n.Train
	updated := m.Updates > 0
	var out []verdict
	rule := func(name string, on bool, v verdict) {
		if v.rule = name; on {
			out = append(out, v)
		}
	}
	rule(RuleReward, cfg.RewardDrop > 0, verdict{
		broken: r.RewardMean < cfg.RewardDrop*s.BestReward, steps: cfg.RewardSteps, pause: true,
		text: fmt.Sprintf("mean reward %.3f is under %g of the stage's best, %.3f in step %d (%s)", r.RewardMean, cfg.RewardDrop, s.BestReward, s.BestStep, inARow(cfg.RewardSteps)),
	})
	rule(RuleDropped, cfg.DroppedSteps > 0, verdict{
		broken: r.Groups > 0 && r.Kept == 0 && r.GroupsAllCorrect < r.Groups, steps: cfg.DroppedSteps, pause: true,
		text: fmt.Sprintf("all %d groups were dropped, and nothing was learned (%s)", r.Groups, inARow(cfg.DroppedSteps)),
	})
	rule(RuleToolErrors, cfg.ToolErrors > 0, verdict{
		broken: r.ToolErrorRate > cfg.ToolErrors, steps: cfg.Steps, pause: true,
		text: fmt.Sprintf("%.1f %% of tool calls fail, more than %g %% (%s)", 100*r.ToolErrorRate, 100*cfg.ToolErrors, inARow(cfg.Steps)),
	})
	rule(RuleClipRatio, cfg.ClipRatio > 0, verdict{
		broken: r.ClipRatio > cfg.ClipRatio, steps: cfg.Steps, pause: true,
		text: fmt.Sprintf("%.1f %% of trajectories are cut at the token limit, more than %g %% (%s)", 100*r.ClipRatio, 100*cfg.ClipRatio, inARow(cfg.Steps)),
	})
	rule(RuleEntropyMin, cfg.EntropyMin > 0, verdict{
		broken: updated && m.Entropy < cfg.EntropyMin, steps: cfg.Steps, pause: true,
		text: fmt.Sprintf("the policy's entropy is %.2g nats per token, under %g: it has collapsed (%s)", m.Entropy, cfg.EntropyMin, inARow(cfg.Steps)),
	})
	rule(RuleEntropyMax, cfg.EntropyMax > 0, verdict{
		broken: updated && m.Entropy > cfg.EntropyMax, steps: cfg.Steps, pause: true,
		text: fmt.Sprintf("the policy's entropy is %.2g nats per token, over %g: it writes noise (%s)", m.Entropy, cfg.EntropyMax, inARow(cfg.Steps)),
	})
	rule(RuleSkipped, cfg.SkippedSteps > 0, verdict{
		broken: m.SkippedUpdates > 0 && !updated, steps: cfg.SkippedSteps, pause: true,
		text: fmt.Sprintf("all %d updates were skipped for the norm of their gradient (%s)", m.SkippedUpdates, inARow(cfg.SkippedSteps)),
	})
	rule(RuleInfra, cfg.InfraErrors > 0, verdict{
		broken: r.Trajectories > 0 && float64(r.InfraErrors) > cfg.InfraErrors*float64(r.Trajectories), steps: 1,
		text: fmt.Sprintf("the infrastructure lost %d of %d trajectories, more than %g %%", r.InfraErrors, r.Trajectories, 100*cfg.InfraErrors),
	})
	return out
}

func inARow(steps int) string {
	if steps <= 1 {
		return "one step"
	}
	return fmt.Sprintf("%d steps in a row", steps)
}

// StallAfter returns the time after which the next step counts as stalled. It is 0 when the
// rule is off, or when too few steps were made to know.
func (s WatchState) StallAfter(cfg config.Watch) time.Duration {
	if cfg.StalledSteps == 0 || len(s.Walls) < minWalls {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(s.Walls), cmp.Compare[time.Duration])
	return max(minStall, time.Duration(cfg.StalledSteps*float64(sorted[len(sorted)/2])))
}

// Stalled is the alert of a step that has not ended in time.
func Stalled(step int, after time.Duration) Alert {
	return Alert{Rule: RuleStalled, Step: step, Text: fmt.Sprintf("step %d has not ended after %s: temper run status names what it waits for", step, after.Round(time.Second))}
}
