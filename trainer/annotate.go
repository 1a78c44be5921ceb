package trainer

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"temper/internal/config"
)

// withoutOverlong leaves out the trajectories that hit the limit of response
// tokens, where the objective asks for it. They have had their part in the
// advantages of their group.
func (t *Trainer) withoutOverlong(obj objective, rows []*row) []*row {
	if obj != objectiveGRPO || t.cfg.Loss.Overlong != config.OverlongMask {
		return rows
	}
	return slices.DeleteFunc(rows, func(r *row) bool { return r.sample.Truncated })
}

// annotate gives the rows of a policy update what the objective needs beside the
// samples. All of it is of the policies before the step.
func (t *Trainer) annotate(ctx context.Context, obj objective, parts [][]*row) error {
	if obj != objectiveGRPO {
		return nil
	}
	rows := slices.Concat(parts...)
	if t.cfg.Loss.OldLogprobs == config.OldRollout || t.cfg.Loss.Correction.Level != "" {
		if err := checkRollout(rows); err != nil {
			return err
		}
	}
	if t.cfg.Loss.KL.Coefficient > 0 {
		if t.reference == nil {
			return fmt.Errorf("rl.loss.kl.coefficient is %g: %w", t.cfg.Loss.KL.Coefficient, ErrNoReference)
		}
		keep := func(r *row, v scores) { r.reference = v.logprobs }
		if err := t.score(ctx, program{obj, passReference}, rows, keep); err != nil {
			return err
		}
	}
	if t.cfg.Loss.EntropyFraction == 0 {
		return nil
	}
	unknown := slices.DeleteFunc(rows, func(r *row) bool { return r.entropy != nil })
	keep := func(r *row, v scores) { r.entropy = v.entropy }
	if err := t.score(ctx, program{obj, passScore}, unknown, keep); err != nil {
		return err
	}
	for _, part := range parts {
		selectUncertain(part, t.cfg.Loss.EntropyFraction)
	}
	return nil
}

// checkRollout refuses samples without the engine's log-probabilities where the
// objective divides by them.
func checkRollout(rows []*row) error {
	for _, r := range rows {
		s := r.sample
		if s.RolloutLogprobs == nil {
			return fmt.Errorf("sample %d (%s/%d): has no rollout log-probabilities, which rl.loss divides by", r.index, s.ProblemID, s.Rollout)
		}
		for p, in := range s.LossMask {
			if x := float64(s.RolloutLogprobs[p]); in && (math.IsNaN(x) || math.IsInf(x, 0)) {
				return fmt.Errorf("sample %d (%s/%d): rollout log-probability of token %d is %v", r.index, s.ProblemID, s.Rollout, p, x)
			}
		}
	}
	return nil
}

// selectUncertain selects the fraction of the minibatch's loss tokens at which
// the policy was least certain, at least one: those at or above a quantile of
// the entropy (arXiv 2506.01939, section 5), equal ones in the order of the samples.
func selectUncertain(rows []*row, fraction float64) {
	type token struct {
		row *row
		at  int
	}
	var all []token
	for _, r := range rows {
		r.selected = make([]bool, r.length)
		for p, in := range r.sample.LossMask[1 : r.length+1] {
			if in {
				all = append(all, token{r, p})
			}
		}
	}
	slices.SortFunc(all, func(a, b token) int {
		return cmp.Or(cmp.Compare(b.row.entropy[b.at], a.row.entropy[a.at]), cmp.Compare(a.row.index, b.row.index), cmp.Compare(a.at, b.at))
	})
	for _, x := range all[:max(1, int(fraction*float64(len(all))))] {
		x.row.selected[x.at] = true
	}
}
