package rules

import (
	"fmt"
	"math"
	"strings"

	"temper/internal/config"
)

// Kind is the kind of a Verdict.
type Kind string

// The kinds of verdicts. With the empty one the stage continues.
const (
	GoOn     Kind = ""
	Plateau  Kind = "plateau"
	Bound    Kind = "bound"
	Collapse Kind = "collapse"
)

// Figures are the numbers of a step that decide a verdict.
type Figures struct {
	Step       int     `json:"step"`
	Reward     float64 `json:"reward"`      // mean
	ClipRatio  float64 `json:"clip_ratio"`  // share of trajectories cut at the token limit
	Tokens     float64 `json:"tokens"`      // mean of the responses
	ToolErrors float64 `json:"tool_errors"` // share of the calls that failed
	// Entropy of the policy in nats per token; it counts only where Updates is more than 0.
	Entropy float64 `json:"entropy"`
	Updates int     `json:"updates"`
}

// Score is the accuracy of the policy that a step published on the evaluation set of
// the plateau.
type Score struct {
	Step     int     `json:"step"`
	Accuracy float64 `json:"accuracy"`
}

// Verdict decides how a stage continues after a step.
type Verdict struct {
	Step   int    `json:"step"`
	Kind   Kind   `json:"kind,omitempty"`
	Reason string `json:"reason,omitempty"`
	// End ends the stage, Pause holds the run before its next step.
	End   bool `json:"end,omitempty"`
	Pause bool `json:"pause,omitempty"`
	// CollapsedSince is the step at which a collapse began that still stands.
	CollapsedSince int `json:"collapsed_since,omitempty"`
	// Trail are the figures of the stage's steps up to this one.
	Trail []Figures `json:"trail,omitempty"`
}

// Case is all that a verdict depends on.
type Case struct {
	Until    config.Until
	Collapse config.Collapse
	// Trail ends with the step that is judged.
	Trail  []Figures
	Scores []Score
	// Last means that the stage has no further step.
	Last bool
	// CollapsedSince is CollapsedSince of the previous verdict.
	CollapsedSince int
}

// JudgeStage returns the verdict of a step. A collapse that ends the stage counts more than a
// plateau, and that more than the bound.
func JudgeStage(c Case) Verdict {
	out := Verdict{Trail: c.Trail}
	if len(c.Trail) == 0 {
		return out
	}
	out.Step = c.Trail[len(c.Trail)-1].Step
	if signs := collapsed(c.Collapse, c.Trail); signs != "" {
		out.CollapsedSince = c.CollapsedSince
		if c.CollapsedSince == 0 {
			out.CollapsedSince, out.Kind, out.Reason = out.Step, Collapse, signs
			out.End = c.Collapse.Then == config.CollapseEnd
			out.Pause = !out.End
			return out
		}
	}
	still, figures := plateau(c.Until.Plateau, c.Trail, c.Scores)
	switch {
	case still:
		out.Kind, out.Reason, out.End = Plateau, figures, true
	case c.Last && c.Until.Plateau.On():
		out.Kind, out.End = Bound, true
		out.Reason = fmt.Sprintf("its bound of %d steps, without a plateau: %s", c.Until.Steps, figures)
	}
	return out
}

// plateau reports whether nothing gets better, and the figures either way.
func plateau(p config.Plateau, trail []Figures, scores []Score) (bool, string) {
	if !p.On() {
		return false, ""
	}
	n := len(trail)
	if n < 2*p.Window {
		return false, fmt.Sprintf("%d steps are fewer than two windows of %d", n, p.Window)
	}
	newest, before := trail[n-p.Window:], trail[n-2*p.Window:n-p.Window]
	reward, earlier, clip := mean(newest, byReward), mean(before, byReward), mean(newest, byClip)
	still := reward-earlier <= p.MinGain
	text := fmt.Sprintf("mean reward %.4f over steps %d to %d and %.4f over steps %d to %d, a gain of %.4f (at most %g)",
		earlier, before[0].Step, before[len(before)-1].Step, reward, newest[0].Step, newest[len(newest)-1].Step, reward-earlier, p.MinGain)
	if p.ClipMin > 0 || p.ClipMax > 0 {
		high := p.ClipMax
		if high == 0 {
			high = 1
		}
		still = still && clip >= p.ClipMin && clip <= high
		text += fmt.Sprintf("; clip ratio %.4f (%g to %g)", clip, p.ClipMin, high)
	}
	if p.Eval == "" {
		return still, text
	}
	k := p.NumEvals()
	if len(scores) <= k {
		return false, text + fmt.Sprintf("; %d evaluations of %s are too few", len(scores), p.Eval)
	}
	best, had := best(scores[len(scores)-k:]), best(scores[:len(scores)-k])
	return still && best.Accuracy-had.Accuracy <= p.MinGain, text + fmt.Sprintf("; best of the newest %d evaluations of %s %.4f after step %d, before them %.4f after step %d",
		k, p.Eval, best.Accuracy, best.Step, had.Accuracy, had.Step)
}

func best(scores []Score) Score {
	out := scores[0]
	for _, s := range scores[1:] {
		if s.Accuracy > out.Accuracy {
			out = s
		}
	}
	return out
}

// collapsed compares the newest window with the best one that ends before it begins, and
// names the signs of a collapse where there are enough of them.
func collapsed(c config.Collapse, trail []Figures) string {
	n, w := len(trail), c.Window
	if !c.On() || n < 2*w {
		return ""
	}
	top, reward := 0, math.Inf(-1)
	for i := 0; i+w <= n-w; i++ {
		if m := mean(trail[i:i+w], byReward); m > reward {
			top, reward = i, m
		}
	}
	newest, peak := trail[n-w:], trail[top:top+w]
	var signs []string
	sign := func(on bool, name string, value func(Figures) (float64, bool), broken func(now, then float64) bool) {
		now, then := mean(newest, value), mean(peak, value)
		if on && !math.IsNaN(now) && !math.IsNaN(then) && broken(now, then) {
			signs = append(signs, fmt.Sprintf("%s %.4g, was %.4g", name, now, then))
		}
	}
	sign(c.RewardDrop > 0, "mean reward", byReward, func(now, then float64) bool { return now < (1-c.RewardDrop)*then })
	sign(c.EntropyDrop > 0, "entropy", byEntropy, func(now, then float64) bool { return now < (1-c.EntropyDrop)*then })
	sign(c.LengthGrowth > 0, "response tokens", byTokens, func(now, then float64) bool { return now > c.LengthGrowth*then })
	sign(c.ToolErrors > 0, "failed calls", byToolErrors, func(now, then float64) bool { return now-then > c.ToolErrors })
	if len(signs) < c.NumSigns() {
		return ""
	}
	return fmt.Sprintf("%s (steps %d to %d against the best window, steps %d to %d)", strings.Join(signs, "; "),
		newest[0].Step, newest[w-1].Step, peak[0].Step, peak[w-1].Step)
}

func byReward(f Figures) (float64, bool)     { return f.Reward, true }
func byClip(f Figures) (float64, bool)       { return f.ClipRatio, true }
func byTokens(f Figures) (float64, bool)     { return f.Tokens, true }
func byToolErrors(f Figures) (float64, bool) { return f.ToolErrors, true }
func byEntropy(f Figures) (float64, bool)    { return f.Entropy, f.Updates > 0 }

// mean returns the mean over the steps that count, in order; NaN when none does.
func mean(fs []Figures, value func(Figures) (float64, bool)) float64 {
	sum, n := 0.0, 0
	for _, f := range fs {
		if v, ok := value(f); ok {
			sum += v
			n++
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}
