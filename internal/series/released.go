package series

// Released has the counts of the released code of rStar2-Agent over the trajectories of a
// step whose groups have unequal rewards, in any mode of resampling.
type Released struct {
	Groups       int     `json:"groups"` // with unequal rewards
	Trajectories int     `json:"trajectories"`
	Results      int     `json:"results"` // of tools
	Errors       int     `json:"errors"`  // results with the word "error"
	Penalties    float64 `json:"penalties"`
	Answers      int     `json:"answers"`
	ZeroAnswers  int     `json:"zero_answers"` // trajectories, as below
	OneAnswer    int     `json:"one_answer"`
	MoreAnswers  int     `json:"more_answers"`
}

// Add counts a trajectory: its tool results, the errors among them, the resulting penalty,
// and its answers.
func (r *Released) Add(results, errors int, penalty float64, answers int) {
	r.Trajectories++
	r.Results += results
	r.Errors += errors
	r.Penalties += penalty
	r.Answers += answers
	switch answers {
	case 0:
		r.ZeroAnswers++
	case 1:
		r.OneAnswer++
	default:
		r.MoreAnswers++
	}
}

// Merge counts what others have counted.
func (r *Released) Merge(o Released) {
	r.Groups += o.Groups
	r.Trajectories += o.Trajectories
	r.Results += o.Results
	r.Errors += o.Errors
	r.Penalties += o.Penalties
	r.Answers += o.Answers
	r.ZeroAnswers += o.ZeroAnswers
	r.OneAnswer += o.OneAnswer
	r.MoreAnswers += o.MoreAnswers
}

func (r *Released) mean(sum float64) float64 { return sum / float64(max(1, r.Trajectories)) }

// releasedRows are the series of the released code under its names. Their population is
// what its function reject_equal_reward leaves.
var releasedRows = []row{
	releasedRow("roc_error_ratio/global_err_ratio", Share, Lower, "tool results with the word error, of groups with unequal rewards", func(r *Released) float64 { return Ratio(r.Errors, r.Results) }),
	releasedRow("roc_error_ratio/penalty_weight", Share, Lower, "mean p_err by the word error, of the same trajectories, right or wrong", func(r *Released) float64 { return r.mean(r.Penalties) }),
	releasedRow("roc_answer_format/answer_per_rollout_mean", Number, Neither, "mean answer blocks of the same trajectories", func(r *Released) float64 { return r.mean(float64(r.Answers)) }),
	releasedRow("roc_answer_format/zero_answer_count", Number, Lower, "of the same trajectories, those without an answer block", func(r *Released) float64 { return float64(r.ZeroAnswers) }),
	releasedRow("roc_answer_format/one_answer_count", Number, Higher, "of the same trajectories, those with one answer block", func(r *Released) float64 { return float64(r.OneAnswer) }),
	releasedRow("roc_answer_format/gt_one_answer_count", Number, Lower, "of the same trajectories, those with several answer blocks", func(r *Released) float64 { return float64(r.MoreAnswers) }),
	releasedRow("reject_equal_reward/solve_non_equal_total", Number, Higher, "groups with unequal rewards", func(r *Released) float64 { return float64(r.Groups) }),
	releasedStepRow("reject_equal_reward/solve_equal_total", Number, Lower, "groups with equal rewards, which are dropped", func(s *Step) float64 { return float64(s.equalGroups()) }),
	releasedStepRow("reject_equal_reward/solve_equal_total_ratio", Share, Lower, "groups with equal rewards, of all with any", func(s *Step) float64 {
		return Ratio(s.equalGroups(), s.equalGroups()+s.Rollouts.Released.Groups)
	}),
	releasedStepRow("reject_equal_reward/solve_equal_zeros", Number, Lower, "groups that no trajectory solved", func(s *Step) float64 { return float64(s.Rollouts.GroupsAllWrong) }),
	releasedStepRow("reject_equal_reward/solve_equal_non_all_zeros", Number, Neither, "groups that each trajectory solved", func(s *Step) float64 { return float64(s.Rollouts.GroupsAllCorrect) }),
}

func releasedRow(name, unit string, better Direction, meaning string, of func(*Released) float64) row {
	return releasedStepRow(name, unit, better, meaning, func(s *Step) float64 { return of(&s.Rollouts.Released) })
}

func releasedStepRow(name, unit string, better Direction, meaning string, of func(*Step) float64) row {
	return row{Metric{name, unit, better, meaning}, func(s *Step) (float64, bool) { return of(s), true }}
}

// equalGroups counts the groups whose rewards are all equal.
func (s *Step) equalGroups() int { return s.Rollouts.GroupsAllCorrect + s.Rollouts.GroupsAllWrong }
