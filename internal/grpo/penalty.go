package grpo

import "temper/internal/rl"

// noCallPenalty is p_err of a trajectory without tool calls. It lies between clean and
// wrong calls, so that using the tool well is preferred to not using it.
const noCallPenalty = 0.5

// Penalties returns the two numbers by which Resample-on-Correct ranks correct
// trajectories (arXiv 2508.20722, section 2.2.3): p_err, the share of tool calls whose
// status is a failure, and p_format, which is above 0 without exactly one answer.
func Penalties(t *rl.Trajectory) (toolErrorRate, formatPenalty float64) {
	toolErrorRate = noCallPenalty
	if calls, failed := t.ToolCounts(); calls > 0 {
		toolErrorRate = rl.ToolErrorRate(calls, failed)
	}
	if t.AnswerTags < 1 || len(t.Turns) == 0 {
		return toolErrorRate, 1
	}
	return toolErrorRate, min(1, float64(t.AnswerTags-1)/float64(len(t.Turns)))
}
