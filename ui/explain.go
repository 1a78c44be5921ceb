package ui

import (
	"fmt"
	"slices"
	"strings"

	"temper/internal/config"
	"temper/internal/grpo"
	"temper/internal/run/record"
)

// explainer says in sentences why the trajectories of a group were kept or dropped. It
// states what the rows record, and where they do not say, that it is not recorded.
type explainer struct {
	roc              grpo.RoC
	groupSize        int
	rows             []record.Row
	correct, wrong   int // that count
	keptPos, keptNeg int
	weights          float64 // sum over correct trajectories
}

func newExplainer(rows []record.Row, cfg config.RL) *explainer {
	e := &explainer{roc: cfg.RoC, groupSize: cfg.GroupSize, rows: rows}
	for _, r := range rows {
		kept := 0
		if r.Fate == record.FateKept {
			kept = 1
		}
		switch {
		case r.Fate == record.FateExcluded:
		case r.Reward > 0:
			e.correct++
			e.keptPos += kept
			if r.Weight != nil {
				e.weights += *r.Weight
			}
		default:
			e.wrong++
			e.keptNeg += kept
		}
	}
	return e
}

// group reports what became of the group as a whole.
func (e *explainer) group() string {
	n := e.correct + e.wrong
	switch {
	case len(e.rows) == 0:
		return "What became of this group is " + notRecorded + "."
	case n == 0:
		return "No trajectory of this group has a reward, so the trainer got none of it."
	case e.wrong == 0:
		return fmt.Sprintf("All %d trajectories are correct: equal rewards teach nothing, so the group was dropped.", n)
	case e.correct == 0:
		return fmt.Sprintf("All %d trajectories are wrong: equal rewards teach nothing, so the group was dropped.", n)
	case e.recorded() && e.tooSmall():
		return fmt.Sprintf("The group has %s, fewer than rl.group_size = %d, so it was dropped, as the released code does.", e.counts(), e.groupSize)
	case e.recorded() && n <= e.groupSize:
		return fmt.Sprintf("The group has %s, no more than rl.group_size = %d, so all were kept.", e.counts(), e.groupSize)
	case e.recorded():
		return fmt.Sprintf("Of %s, %d correct and %d wrong ones were kept (rl.group_size = %d). %s", e.counts(), e.keptPos, e.keptNeg, e.groupSize, e.way())
	default:
		return fmt.Sprintf("The group has %s; which were kept is %s.", e.counts(), notRecorded)
	}
}

func (e *explainer) recorded() bool {
	return !slices.ContainsFunc(e.rows, func(r record.Row) bool { return r.Fate == "" })
}

// tooSmall reports whether the mode released has dropped the whole group for its size.
func (e *explainer) tooSmall() bool {
	return e.roc.Enabled && e.roc.Mode == grpo.ModeReleased && e.correct+e.wrong < e.groupSize && e.keptPos+e.keptNeg == 0
}

func (e *explainer) counts() string {
	return fmt.Sprintf("%d correct and %d wrong trajectories", e.correct, e.wrong)
}

// way reports how the choice was made.
func (e *explainer) way() string {
	switch {
	case !e.roc.Enabled:
		return "Resample-on-Correct is off: they were drawn uniformly."
	case e.roc.Mode == grpo.ModeReleased:
		return "Of the correct ones those with the lowest penalties stay, of the wrong ones the first."
	default:
		return fmt.Sprintf("Correct ones were drawn with weights 1/(p_err + p_format + %g), wrong ones uniformly.", e.roc.Smoothing)
	}
}

// sentence reports why one trajectory has its fate.
func (e *explainer) sentence(r record.Row) string {
	verdict := "Wrong"
	if r.Reward > 0 {
		verdict = "Correct"
	}
	switch r.Fate {
	case record.FateExcluded:
		return fmt.Sprintf("Excluded (%s): it has no reward and counts neither for nor against the policy.", r.StopReason)
	case record.FateUniform:
		return verdict + ", not trained on: all rewards of the group are equal."
	case record.FateKept:
		return fmt.Sprintf("%s, kept: %s%s", verdict, e.reason(r), advantageOf(r))
	case record.FateDropped:
		return fmt.Sprintf("%s, dropped: %s", verdict, e.reason(r))
	default:
		return fmt.Sprintf("%s; whether it was kept is %s.", verdict, notRecorded)
	}
}

func advantageOf(r record.Row) string {
	if r.Advantage == nil {
		return ""
	}
	return fmt.Sprintf(" Advantage %+.3f.", *r.Advantage)
}

// reason reports what the choice looked at.
func (e *explainer) reason(r record.Row) string {
	kept := r.Fate == record.FateKept
	switch {
	case e.tooSmall():
		return "the group is smaller than rl.group_size."
	case e.correct+e.wrong <= e.groupSize:
		return "the group is no larger than rl.group_size."
	case !e.roc.Enabled:
		return fmt.Sprintf("%s; %d of %d stay, all with the same chance.", drawn(kept), e.keptPos+e.keptNeg, e.correct+e.wrong)
	case r.Reward <= 0 && e.roc.Mode == grpo.ModeReleased:
		return fmt.Sprintf("of %d wrong ones the first %d stay.", e.wrong, e.keptNeg)
	case r.Reward <= 0:
		return fmt.Sprintf("%s; %d of %d wrong ones stay, all with the same chance.", drawn(kept), e.keptNeg, e.wrong)
	case r.PErr == nil || r.PFormat == nil:
		return "its penalties are " + notRecorded + "."
	}
	facts := []string{callsOf(r), formatOf(r)}
	if e.roc.Mode == grpo.ModeReleased {
		return fmt.Sprintf("%s; %d of %d correct ones with the lowest penalties stay.", strings.Join(facts, ", "), e.keptPos, e.correct)
	}
	if r.Weight != nil && e.weights > 0 {
		facts = append(facts, fmt.Sprintf("weight %.3g, %.0f%% of a draw", *r.Weight, 100**r.Weight/e.weights))
	}
	return fmt.Sprintf("%s; %s, %d of %d correct ones stay.", strings.Join(facts, ", "), drawn(kept), e.keptPos, e.correct)
}

func drawn(kept bool) string {
	if kept {
		return "drawn"
	}
	return "not drawn"
}

func callsOf(r record.Row) string {
	switch {
	case r.Calls == 0:
		return fmt.Sprintf("no tool call (p_err %.2f)", *r.PErr)
	case r.FailedCalls == 0 && r.Calls == 1:
		return fmt.Sprintf("its only call succeeded (p_err %.2f)", *r.PErr)
	case r.FailedCalls == 0:
		return fmt.Sprintf("all %d calls succeeded (p_err %.2f)", r.Calls, *r.PErr)
	default:
		if r.Calls == 1 {
			return fmt.Sprintf("its only call failed (p_err %.2f)", *r.PErr)
		}
		return fmt.Sprintf("%d of %d calls failed (p_err %.2f)", r.FailedCalls, r.Calls, *r.PErr)
	}
}

func formatOf(r record.Row) string {
	switch r.AnswerTags {
	case 0:
		return fmt.Sprintf("no answer tag (p_format %.2f)", *r.PFormat)
	case 1:
		return fmt.Sprintf("one answer tag (p_format %.2f)", *r.PFormat)
	default:
		return fmt.Sprintf("%d answer tags in %d turns (p_format %.2f)", r.AnswerTags, r.Turns, *r.PFormat)
	}
}
