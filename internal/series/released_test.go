package series_test

import (
	"math"
	"testing"

	"temper/internal/series"
)

// TestReleasedSeries: the names and numbers of the released code, of one group with unequal
// rewards beside two with equal ones.
func TestReleasedSeries(t *testing.T) {
	counts := series.Released{Groups: 1}
	counts.Add(4, 1, 0.25, 1) // results, errors, p_err, answers
	counts.Add(0, 0, 0.5, 0)
	var other series.Released
	other.Add(2, 2, 1, 3)
	counts.Merge(other)
	step := series.Step{Rollouts: series.Rollouts{Groups: 4, GroupsAllCorrect: 1, GroupsAllWrong: 1, Released: counts}}
	got := step.Values()
	for name, want := range map[string]float64{
		"roc_error_ratio/global_err_ratio": 0.5, "roc_error_ratio/penalty_weight": 1.75 / 3,
		"roc_answer_format/answer_per_rollout_mean": 4.0 / 3, "roc_answer_format/zero_answer_count": 1,
		"roc_answer_format/one_answer_count": 1, "roc_answer_format/gt_one_answer_count": 1,
		"reject_equal_reward/solve_non_equal_total": 1, "reject_equal_reward/solve_equal_total": 2,
		"reject_equal_reward/solve_equal_total_ratio": 2.0 / 3, "reject_equal_reward/solve_equal_zeros": 1,
		"reject_equal_reward/solve_equal_non_all_zeros": 1,
	} {
		if have, ok := got[name]; !ok || math.Abs(have-want) > 1e-12 {
			t.Errorf("%s is %v (%v), want %v", name, have, ok, want)
		}
	}
}
