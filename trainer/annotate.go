package trainer

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"temper/internal/config"
	"temper/trainer/packing"
	"temper/trainer/passes"
)

// withoutOverlong drops the trajectories that hit the limit of response tokens, if the
// objective asks for it. They still count in the advantages of their group.
func (s *step) withoutOverlong(rows []*packing.Row) []*packing.Row {
	if s.objective != passes.Policy || s.loss.Overlong != config.OverlongMask {
		return rows
	}
	return slices.DeleteFunc(rows, func(r *packing.Row) bool { return r.Sample.Truncated })
}

// annotate adds to the rows of a policy update the values that the objective needs beside the
// samples. All of them come from the policies before the step.
func (s *step) annotate(ctx context.Context, parts [][]*packing.Row) error {
	if s.objective != passes.Policy {
		return nil
	}
	rows := slices.Concat(parts...)
	if s.loss.OldLogprobs == config.OldRollout || s.loss.Correction.Level != "" {
		if err := checkRollout(rows); err != nil {
			return err
		}
	}
	if s.loss.KL.Coefficient > 0 {
		if !s.reference.Held() {
			return fmt.Errorf("rl.loss.kl.coefficient is %g: %w", s.loss.KL.Coefficient, ErrNoReference)
		}
		keep := func(r *packing.Row, v scores) { r.Reference = v.logprobs }
		if err := s.scorer.score(ctx, s.program(passes.Reference), rows, keep); err != nil {
			return err
		}
	}
	if s.loss.EntropyFraction == 0 {
		return nil
	}
	unknown := slices.DeleteFunc(rows, func(r *packing.Row) bool { return r.Entropy != nil })
	keep := func(r *packing.Row, v scores) { r.Entropy = v.entropy }
	if err := s.scorer.score(ctx, s.program(passes.Score), unknown, keep); err != nil {
		return err
	}
	for _, part := range parts {
		selectUncertain(part, s.loss.EntropyFraction)
	}
	return nil
}

// checkRollout refuses samples without the engine's log-probabilities if the objective divides
// by them.
func checkRollout(rows []*packing.Row) error {
	for _, r := range rows {
		s := r.Sample
		if s.RolloutLogprobs == nil {
			return fmt.Errorf("sample %d (%s/%d): has no rollout log-probabilities, which rl.loss divides by", r.Index, s.ProblemID, s.Rollout)
		}
		for p, in := range s.LossMask {
			if x := float64(s.RolloutLogprobs[p]); in && (math.IsNaN(x) || math.IsInf(x, 0)) {
				return fmt.Errorf("sample %d (%s/%d): rollout log-probability of token %d is %v", r.Index, s.ProblemID, s.Rollout, p, x)
			}
		}
	}
	return nil
}

// selectUncertain selects the fraction of the minibatch's loss tokens at which the policy was
// least certain, those above a quantile of the entropy (arXiv 2506.01939, section 5). It
// selects at least one token; ties go to the earlier sample.
func selectUncertain(rows []*packing.Row, fraction float64) {
	type token struct {
		row *packing.Row
		at  int
	}
	var all []token
	for _, r := range rows {
		r.Selected = make([]bool, r.Length)
		for p, in := range r.Sample.LossMask[1 : r.Length+1] {
			if in {
				all = append(all, token{r, p})
			}
		}
	}
	slices.SortFunc(all, func(a, b token) int {
		return cmp.Or(cmp.Compare(b.row.Entropy[b.at], a.row.Entropy[a.at]), cmp.Compare(a.row.Index, b.row.Index), cmp.Compare(a.at, b.at))
	})
	for _, x := range all[:max(1, int(fraction*float64(len(all))))] {
		x.row.Selected[x.at] = true
	}
}
