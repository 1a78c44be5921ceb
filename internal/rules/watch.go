package rules

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"temper/internal/config"
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

// StepFigures is what the rules look at in a step.
type StepFigures struct {
	Step, Stage  int
	Reward       float64 // mean
	Groups       int     // all of the step
	AllCorrect   int     // groups dropped because nothing is left to learn in them
	Kept         int     // trajectories that were trained on
	Trajectories int
	InfraErrors  int     // trajectories lost to the infrastructure
	ToolErrors   float64 // share of the calls that failed
	ClipRatio    float64 // share of trajectories cut at the token limit
	Entropy      float64 // nats per token
	Updates      int     // optimizer updates that were applied
	Skipped      int     // and those left out for the norm of their gradient
	Wall         time.Duration
}

// Alert is a rule that a run has begun to break.
type Alert struct {
	Rule string `json:"rule"`
	Step int    `json:"step"`
	Text string `json:"text"`
	// Pause asks that the run stands still before its next step.
	Pause bool `json:"pause,omitempty"`
}

// WatchState is what the rules need to know of the steps before, within one stage.
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

// verdict is what a rule says of a step.
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
	if finite(n.Reward) && (n.Reward > s.BestReward || s.BestStep == 0) {
		s.BestReward, s.BestStep = n.Reward, n.Step
	}
	out := WatchState{Stage: s.Stage, BestReward: s.BestReward, BestStep: s.BestStep, Updates: s.Updates + n.Updates, Broken: map[string]int{}}
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
	updated := n.Updates > 0
	var out []verdict
	rule := func(name string, on bool, v verdict) {
		if v.rule = name; on {
			out = append(out, v)
		}
	}
	rule(RuleReward, cfg.RewardDrop > 0, verdict{
		broken: n.Reward < cfg.RewardDrop*s.BestReward, steps: cfg.RewardSteps, pause: true,
		text: fmt.Sprintf("mean reward %.3f is under %g of the stage's best, %.3f in step %d (%s)", n.Reward, cfg.RewardDrop, s.BestReward, s.BestStep, inARow(cfg.RewardSteps)),
	})
	rule(RuleDropped, cfg.DroppedSteps > 0, verdict{
		broken: n.Groups > 0 && n.Kept == 0 && n.AllCorrect < n.Groups, steps: cfg.DroppedSteps, pause: true,
		text: fmt.Sprintf("all %d groups were dropped, and nothing was learned (%s)", n.Groups, inARow(cfg.DroppedSteps)),
	})
	rule(RuleToolErrors, cfg.ToolErrors > 0, verdict{
		broken: n.ToolErrors > cfg.ToolErrors, steps: cfg.Steps, pause: true,
		text: fmt.Sprintf("%.1f %% of tool calls fail, more than %g %% (%s)", 100*n.ToolErrors, 100*cfg.ToolErrors, inARow(cfg.Steps)),
	})
	rule(RuleClipRatio, cfg.ClipRatio > 0, verdict{
		broken: n.ClipRatio > cfg.ClipRatio, steps: cfg.Steps, pause: true,
		text: fmt.Sprintf("%.1f %% of trajectories are cut at the token limit, more than %g %% (%s)", 100*n.ClipRatio, 100*cfg.ClipRatio, inARow(cfg.Steps)),
	})
	rule(RuleEntropyMin, cfg.EntropyMin > 0, verdict{
		broken: updated && n.Entropy < cfg.EntropyMin, steps: cfg.Steps, pause: true,
		text: fmt.Sprintf("the policy's entropy is %.2g nats per token, under %g: it has collapsed (%s)", n.Entropy, cfg.EntropyMin, inARow(cfg.Steps)),
	})
	rule(RuleEntropyMax, cfg.EntropyMax > 0, verdict{
		broken: updated && n.Entropy > cfg.EntropyMax, steps: cfg.Steps, pause: true,
		text: fmt.Sprintf("the policy's entropy is %.2g nats per token, over %g: it writes noise (%s)", n.Entropy, cfg.EntropyMax, inARow(cfg.Steps)),
	})
	rule(RuleSkipped, cfg.SkippedSteps > 0, verdict{
		broken: n.Skipped > 0 && !updated, steps: cfg.SkippedSteps, pause: true,
		text: fmt.Sprintf("all %d updates were skipped for the norm of their gradient (%s)", n.Skipped, inARow(cfg.SkippedSteps)),
	})
	rule(RuleInfra, cfg.InfraErrors > 0, verdict{
		broken: n.Trajectories > 0 && float64(n.InfraErrors) > cfg.InfraErrors*float64(n.Trajectories), steps: 1,
		text: fmt.Sprintf("the infrastructure lost %d of %d trajectories, more than %g %%", n.InfraErrors, n.Trajectories, 100*cfg.InfraErrors),
	})
	return out
}

func inARow(steps int) string {
	if steps <= 1 {
		return "one step"
	}
	return fmt.Sprintf("%d steps in a row", steps)
}

// StallAfter is the time after which the next step counts as stalled. It is 0 where
// nobody watches for that, or too few steps were made to know.
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
