package grpo

import "temper/internal/rl"

// noCallPenalty is p_err of a trajectory without tool calls. It lies between clean and
// wrong calls, so that using the tool well is preferred to not using it.
const noCallPenalty = 0.5

// Weight returns 1/(p_err + p_format + s), the weight by which ModePaper draws a correct
// trajectory with these penalties.
func (c RoC) Weight(toolErrorRate, formatPenalty float64) float64 {
	return 1 / (toolErrorRate + formatPenalty + c.Smoothing)
}

// Penalties returns the two numbers by which Resample-on-Correct ranks correct trajectories
// (arXiv 2508.20722, section 2.2.3): p_err, the share of tool calls that are errors, and
// p_format, which is above 0 without exactly one answer. The mode defines errors and turns.
func (c RoC) Penalties(t *rl.Trajectory) (toolErrorRate, formatPenalty float64) {
	if c.Mode == ModeReleased {
		return AsReleased(t).Penalties()
	}
	toolErrorRate = noCallPenalty
	if calls, failed := t.ToolCounts(); calls > 0 {
		toolErrorRate = rl.ToolErrorRate(calls, failed)
	}
	if t.AnswerTags < 1 || len(t.Turns) == 0 {
		return toolErrorRate, 1
	}
	return toolErrorRate, min(1, float64(t.AnswerTags-1)/float64(len(t.Turns)))
}
